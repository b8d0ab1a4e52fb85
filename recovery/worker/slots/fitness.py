"""Slots that claim tasks and run none: noticed, replaced, and reported.

A slot may lack something that is no task's fault: a folder, memory, a module that can't be imported any more. Each task
that it claims would fail before or after its function, and count as an attempt that was lost. So after LIMIT tasks in a
row it gives them back, uncounted, and its pool process ends with the code UNFIT; the pool starts another one.

If that one fails as well, before any task was done, the environment of the whole worker is to blame: the worker takes
nothing for a while, longer each time. What was given back gets no message, so it comes again after a while. A task that
is itself the cause fails alone, between others that are done, and is left to its deadline; `engine` bounds how often it
is given back all the same.

What slots and their parent know of each other stands in memory that they share.
"""

from __future__ import annotations

import mmap
import time

from recovery.engine import in_a_line
from recovery.errors import RecoveryError
from recovery.records import FailingSlots
from recovery.retry.own_work import UNFIT_WORKER

LIMIT = 3
"""Tasks in a row that a slot can't run, until it is replaced."""
UNFIT = 70
"""Exit code of such a pool process: EX_SOFTWARE of sysexits.h."""
RECENT = 120.0
"""Seconds for which one is reported after which other slots did their work."""
REASON = 300
"""Bytes that are kept of a reason."""
_DONE, _STRIKES, _REASON = 0, 1, 2
_MOST = 255


class Fitness:
    """The fitness of the slots of one worker. Made before its pool forks."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _REASON + REASON)
        self._failed: dict[str, str | None] = {}
        """{decision: its pass, if it may be given back} of this process."""
        self._ended_at = self._pause_until = float("-inf")

    # In a slot:

    def was_done(self) -> None:
        """Note that a task was done, whatever its outcome."""
        if self._failed:
            self._failed = {}
        self._memory[_DONE] = 1

    def was_not_done(self, decision_id: str, pass_key: str | None, error: Exception) -> None:
        """Note that a task was claimed and could not be run because of an error. An error of ours does not count,
        because a server or a record is to blame for it."""
        if isinstance(error, RecoveryError):
            return
        self._failed = {**self._failed, decision_id: pass_key or self._failed.get(decision_id)}
        self._memory[_REASON:] = in_a_line(error).encode()[:REASON].ljust(REASON, b"\0")

    @property
    def is_unfit(self) -> bool:
        """Whether this process can't run tasks."""
        return len(self._failed) >= LIMIT

    def take_unrun(self) -> dict[str, str]:
        """Return {decision: pass} of what is to be given back, once."""
        failed, self._failed = self._failed, {}
        return {decision_id: pass_key for decision_id, pass_key in failed.items() if pass_key is not None}

    # In the worker's parent:

    def ended_unfit(self) -> None:
        """Note that a slot was replaced because it could not run tasks."""
        before = 0 if self._memory[_DONE] else self._memory[_STRIKES]
        strikes = self._memory[_STRIKES] = min(_MOST, before + 1)
        self._memory[_DONE] = 0
        self._ended_at = time.monotonic()
        if strikes > 1:
            self._pause_until = self._ended_at + UNFIT_WORKER.delay(strikes - 1)

    def may_take(self) -> bool:
        """Whether the worker may take tasks now."""
        return time.monotonic() >= self._pause_until

    def report(self) -> FailingSlots | None:
        """Return what the worker's record says of it."""
        strikes = self._memory[_STRIKES]
        if not strikes or (self._memory[_DONE] and time.monotonic() - self._ended_at > RECENT):
            return None
        return FailingSlots(in_a_row=strikes, reason=self.reason)

    @property
    def reason(self) -> str:
        """The error because of which the last task could not be run."""
        return self._memory[_REASON:].rstrip(b"\0").decode(errors="replace")
