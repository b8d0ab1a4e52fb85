"""Requeue at once the tasks that a dead pool process or a dead worker of this host had claimed.

The death of a process is reported only once, and the deadlines of its claims may be far away. So claims are checked
again until a majority of MongoDB's members has the result: before that a failover could restore the claims of the dead
process.

If this worker ends before that, the claims are found by their deadlines.
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
"""Seconds until the next look at claims that could not be requeued, or whose requeuing a failover may undo. This is not
a retry of a call: each look covers all claims reported by then, and deadlines find the others."""
STOP_TIMEOUT = 5.0
"""Seconds that the end of a worker waits for a rescue."""
PAGE = 1000
"""Number of decisions that are given back at once."""
CATCH_UP_TIMEOUT = 1.0
"""Seconds that a look waits for a majority of MongoDB's members, which usually takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Death:
    """The known facts about the end of a process: how it ended, and what it ran."""

    how: str = ""
    ran: LastRun | None = None


class Rescue:
    """The thread that rescues the claims of processes and workers that are gone. Call `start` in the parent process,
    after the pool has forked."""

    def __init__(self, app: Recovery) -> None:
        self._app = app
        self._reported: SimpleQueue[tuple[str, Death]] = SimpleQueue()
        self._unconfirmed: dict[str, Death] = {}
        """{holder: how it ended} for all holders whose claims must be checked again."""
        self._thread = ServiceThread("rescue", self._rescue_reported)

    def start(self) -> None:
        """Start the thread. It is not the lifeline's, because a rescue may take longer than a heartbeat may be late."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. Wait up to STOP_TIMEOUT for a rescue in progress."""
        self._thread.stop(timeout=STOP_TIMEOUT)

    def gone(self, holder: str, how: str = "", ran: LastRun | None = None) -> None:
        """Request the rescue of all claims of a worker, or of one of its processes, that is gone. Thread-safe; does not
        wait.

        Args:
            holder: The worker's id, or the holder name of its process.
            how: How it ended; empty if unknown.
            ran: What it ran when it died, if that is known.
        """
        self._reported.put((holder, Death(how, ran)))
        self._thread.wake()

    def run_once(self) -> frozenset[str]:
        """Rescue the claims of all newly reported holders, and check those of the unconfirmed ones again.

        Does not raise if servers are away.

        Returns:
            The holders to check again.
        """
        reported = dict(self._take_reported())
        unconfirmed = {holder: death for holder, death in self._unconfirmed.items() if holder not in reported}
        for holder, death in reported.items():
            self._rescue(holder, death)
        if unconfirmed and self._caught_up():
            unconfirmed = {holder: death for holder, death in unconfirmed.items() if self._rescue(holder, death)}
        self._unconfirmed = unconfirmed | reported
        return frozenset(self._unconfirmed)

    def _take_reported(self) -> Iterator[tuple[str, Death]]:
        with suppress(Empty):
            while True:
                yield self._reported.get_nowait()

    def _rescue(self, holder: str, death: Death) -> bool:
        """Rescue the claims of one holder. Return whether anything was done or could not be done, so that a majority
        may not have the result yet."""
        resources = self._app.resources
        try:
            given_back_count = self._give_back(holder, death.ran) if death.ran is not None else 0
            ran_id = death.ran.decision_id if death.ran is not None else None
            if death.how or ran_id:
                resources.store.decisions.note_lost(holder, death.how, ran_id)
            repairer = Repairer(resources, self._app.outbox)
            # The death of a slot is not counted: it has no record by which it could be counted once.
            changed = rescue(resources, repairer, [holder], metrics.WORKERS_LOST.inc)
            return bool(changed or given_back_count)
        except (StoreError, BrokerError) as error:
            log.warning("could not requeue the claims of %s (%s); retried", holder, error)
            self._reported.put((holder, death))  # a failed rescue is retried without waiting for a majority
            return True
        except Exception as error:  # the claims' deadlines stay
            tell(holder, error)
            return False

    def _give_back(self, holder: str, last: LastRun) -> int:
        """Requeue the tasks of the process's batch that had not begun. Return how many."""
        resources, count = self._app.resources, 0
        while queued := resources.store.requeues.requeue_unbegun(holder, last.decision_id, PAGE, new_pass()):
            push(resources, queued)
            count_requeued("GIVEN_BACK", [decision.actor for decision in queued])
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
