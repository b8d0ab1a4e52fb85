"""What a pool process or a neighbour had claimed that is gone: requeued at once, and looked at until that is certain.

That a process died is reported once, and the deadlines of its claims may be far off. So that one was requeued, or has
ended, counts once a majority of MongoDB's members has it: until then a failover could give it back to who is gone.

Its deadline is the net, where this worker ends before that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from recovery import metrics
from recovery.engine import LastRun, Recovery, push, tell
from recovery.errors import BrokerError, StoreError
from recovery.metrics.registry import count_requeued
from recovery.records.ids import new_pass
from recovery.repair import Repairer
from recovery.scan import rescue
from recovery.threads import ServiceThread

log = logging.getLogger(__name__)

AGAIN = 1.0
"""Seconds until the next look at what the database could not take, or may take back. Each look is at all that there is
by then, and its deadlines are the net: no call that is tried again."""
STOP_TIMEOUT = 5.0
"""Seconds that the end of a worker waits for a rescue."""
PAGE = 1000
"""Decisions that are given back at once."""
CATCH_UP_TIMEOUT = 1.0
"""Seconds that a look waits for the majority: a thousand times what it takes while all is well."""


@dataclass(frozen=True, slots=True)
class Death:
    """What is known of the end of a process."""

    how: str = ""
    ran: LastRun | None = None


class Rescue:
    """Rescues what processes and workers had claimed that are gone. `start` in the parent process, after the pool has
    forked."""

    def __init__(self, app: Recovery) -> None:
        self._app = app
        self._reported: SimpleQueue[tuple[str, Death]] = SimpleQueue()
        self._unproven: dict[str, Death] = {}
        """{holder: how it ended} of those that are to be looked after once more."""
        self._thread = ServiceThread("rescue", self._rescue_reported)

    def start(self) -> None:
        """Start the thread. It is not the lifeline's, because a rescue may take longer than a heartbeat may be late."""
        self._thread.start()

    def stop(self) -> None:
        """Rescue no more."""
        self._thread.stop(timeout=STOP_TIMEOUT)

    def gone(self, holder: str, how: str = "", ran: LastRun | None = None) -> None:
        """Have the claims rescued of a worker, or of one process of it, that is gone; `how` it ended and what it `ran`,
        if that is known. Any thread; does not wait."""
        self._reported.put((holder, Death(how, ran)))
        self._thread.wake()

    def run_once(self) -> frozenset[str]:
        """Rescue the claims of all holders reported since the last time, and look again at those before them. Return
        the holders to look at once more. Does not raise for servers that are away."""
        reported = dict(self._taken())
        before = {holder: death for holder, death in self._unproven.items() if holder not in reported}
        for holder, death in reported.items():
            self._rescue(holder, death)
        if before and self._caught_up():
            before = {holder: death for holder, death in before.items() if self._rescue(holder, death)}
        self._unproven = before | reported
        return frozenset(self._unproven)

    def _taken(self) -> Iterator[tuple[str, Death]]:
        with suppress(Empty):
            while True:
                yield self._reported.get_nowait()

    def _rescue(self, holder: str, death: Death) -> bool:
        """Rescue the claims of one holder. Return whether anything was done, or could not be done: then a majority may
        not have it."""
        resources = self._app.resources
        try:
            given_back = self._give_back(holder, death.ran) if death.ran is not None else 0
            ran = death.ran.decision_id if death.ran is not None else None
            if death.how or ran:
                resources.store.decisions.note_lost(holder, death.how, ran)
            repairer = Repairer(resources, self._app.outbox)
            # A slot has no record that could be counted.
            done = rescue(resources, repairer, [holder], metrics.WORKERS_LOST.inc)
            return bool(done or given_back)
        except (StoreError, BrokerError) as error:
            log.warning("%s: not requeued yet (%s)", holder, error)
            self._reported.put((holder, death))  # what was not done does not wait for a majority
            return True
        except Exception as error:  # its deadlines stand
            tell(holder, error)
            return False

    def _give_back(self, holder: str, last: LastRun) -> int:
        """Requeue the rest of the batch that the process held and had not begun. Return how many tasks that were."""
        resources, count = self._app.resources, 0
        while queued := resources.store.requeues.requeue_unbegun(holder, last.decision_id, PAGE, new_pass()):
            push(resources, queued)
            count_requeued("GIVEN_BACK", [one.actor for one in queued])
            count += len(queued)
        return count

    def _caught_up(self) -> bool:
        try:
            self._app.resources.store.catch_up(CATCH_UP_TIMEOUT)
        except StoreError as error:
            log.debug("a majority does not have what the primary has (%s)", error)
            return False
        return True

    def _rescue_reported(self) -> float | None:
        return AGAIN if self.run_once() else None
