"""Slots that claim tasks but can run none: they are noticed, replaced and reported.

A slot may lack something that is no task's fault: a folder, memory, or a module that can no longer be imported. Each
task that it claims would then fail outside its function, and count as a lost attempt. So after LIMIT such tasks in a
row the slot gives them back without counting them, and its pool process ends with the code UNFIT. The pool starts
another process.

If that process fails as well, before any task was done, the environment of the whole worker is to blame. The worker
then takes nothing for a while, longer each time. Tasks that were given back get no message, so they return after a
while. A task that is itself the cause fails alone among tasks that are done, and is left to its deadline; `engine` also
limits how often a task is given back.

The slots and their parent share this state in memory.
"""

from __future__ import annotations

import mmap
import time

from recovery.engine import in_a_line
from recovery.errors import RecoveryError
from recovery.records import FailingSlots
from recovery.retry.own_work import UNFIT_WORKER

LIMIT = 3
"""Number of tasks in a row that a slot fails to run before it is replaced."""
UNFIT = 70
"""Exit code of an unfit pool process: EX_SOFTWARE of sysexits.h."""
RECENT = 120.0
"""Seconds for which an unfit slot is reported if other slots have run tasks since."""
REASON = 300
"""Maximum bytes of a reason that are kept."""
_DONE, _STRIKES, _REASON = 0, 1, 2
_MAX_STRIKES = 255


class Fitness:
    """The fitness of the slots of one worker. Made before its pool forks."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _REASON + REASON)
        self._unrun: dict[str, str | None] = {}
        """{decision id: its pass, or None if it may not be given back}, for this process."""
        self._ended_at = self._pause_until = float("-inf")

    # In a slot:

    def was_done(self) -> None:
        """Note that a task was done, whatever its outcome."""
        if self._unrun:
            self._unrun = {}
        self._memory[_DONE] = 1

    def was_not_done(self, decision_id: str, pass_key: str | None, error: Exception) -> None:
        """Note that a task was claimed but could not be run because of an error. A RecoveryError does not count,
        because a server or a record is to blame for it."""
        if isinstance(error, RecoveryError):
            return
        self._unrun = {**self._unrun, decision_id: pass_key or self._unrun.get(decision_id)}
        self._memory[_REASON:] = in_a_line(error).encode()[:REASON].ljust(REASON, b"\0")

    @property
    def is_unfit(self) -> bool:
        """Whether this process can't run tasks."""
        return len(self._unrun) >= LIMIT

    def take_unrun(self) -> dict[str, str]:
        """Return {decision id: pass} of the tasks to give back. Each is returned once."""
        unrun, self._unrun = self._unrun, {}
        return {decision_id: pass_key for decision_id, pass_key in unrun.items() if pass_key is not None}

    # In the worker's parent:

    def ended_unfit(self) -> None:
        """Note that a slot was replaced because it could not run tasks."""
        strikes_so_far = 0 if self._memory[_DONE] else self._memory[_STRIKES]
        strikes = self._memory[_STRIKES] = min(_MAX_STRIKES, strikes_so_far + 1)
        self._memory[_DONE] = 0
        self._ended_at = time.monotonic()
        if strikes > 1:
            self._pause_until = self._ended_at + UNFIT_WORKER.delay(strikes - 1)

    def may_take(self) -> bool:
        """Return whether the worker may take tasks now."""
        return time.monotonic() >= self._pause_until

    def report(self) -> FailingSlots | None:
        """Return the report for the worker's record; None if there is nothing to report."""
        strikes = self._memory[_STRIKES]
        if not strikes or (self._memory[_DONE] and time.monotonic() - self._ended_at > RECENT):
            return None
        return FailingSlots(in_a_row=strikes, reason=self.reason)

    @property
    def reason(self) -> str:
        """Why the last task that failed here could not be run: the error, in one line."""
        return self._memory[_REASON:].rstrip(b"\0").decode(errors="replace")
