"""Answer Celery beat: a nudge makes one worker run its scanners, in a thread of its parent process.

Scanners do not run in the pool, which may be full of long attempts just when recovery is needed. Any number of nudges
that come during a scan cause one more scan.

Redis does not drop expired messages, because kombu's transport ignores `expires` there. So whoever sends a nudge trims
the queue to the last few (`beat.keep_short`); otherwise it would grow while nobody takes nudges. An old nudge is taken
like a new one: an expiry would compare beat's clock with this worker's, and a wrong clock would end all scans. If no
beat nudges, or its nudges get lost, workers nudge themselves (`Lifeline`).

Runs are recorded in MongoDB (`ScanNotes`). From these records `recovery doctor` reports whether a beat nudges and
somebody scans, and workers see whether somebody scans.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any

from celery import bootsteps
from kombu import Consumer, Exchange, Queue

from recovery.engine import Keys, Recovery
from recovery.errors import StoreError
from recovery.metrics.carried_counts import CountsTaker
from recovery.queue.message import NUDGE
from recovery.records import ScannerRun
from recovery.scan import (
    DecisionScanner,
    GraphScanner,
    ProcessScanner,
    Scanner,
    ScanResult,
    ScheduleScanner,
    WorkerScanner,
)
from recovery.scan.census import CensusTaker
from recovery.store import schema
from recovery.store.views.scanner_queries import Scanners
from recovery.threads import ServiceThread
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.queue_consumption import QueueConsumption
from recovery.worker.operating import Operating

log = logging.getLogger(__name__)

TURN = 2.0
"""Seconds after which a scanner with more to do lets the other scanners have their turn. Otherwise a machine that dies
meanwhile would be found late. A page is not interrupted. A page of requeued tasks takes well below a second, but a page
whose tasks are applied one by one takes some seconds, and delays the other scanners as long."""


LONG = 0.5
"""Seconds of a scanner's run after which the run is recorded before the next scanner runs."""

LOOK_AT_ALL_EVERY = 30.0
"""Seconds between two runs of a scanner that has nothing overdue. A record whose deadline is missing or damaged waits
at most this long until it is found."""
TELL_EVERY = 1.5
"""Minimum seconds between two records of runs. The runs of all scanners are one small write. With a nudge each second,
the last record of a cluster that scans is at most 2 s old."""


class Scanning:
    """The scanners of a worker and the thread that they run in. `operate` is called if an operation is live."""

    def __init__(self, app: Recovery, lifeline: Lifeline, operate: Callable[[], object] = lambda: None) -> None:
        resources, outbox = app.resources, app.outbox
        self._scanners: list[Scanner[Any]] = [
            WorkerScanner(resources, outbox, lifeline.judging.silent),
            DecisionScanner(resources, outbox),
            GraphScanner(resources, outbox),
            ProcessScanner(resources, outbox),
            ScheduleScanner(resources, outbox, Keys(app.actors)),
        ]
        self._lifeline, self._operate = lifeline, operate
        lifeline.nudge = self.nudge
        self._due = resources.store.due
        self._ran_at: dict[str, float] = {}
        self._overdue_collections: frozenset[str] | None = None
        self.busy = False
        """Whether scanners run now, so that new operations have not been looked for yet."""
        self._side_jobs = (CensusTaker(resources.store), CountsTaker(resources.store))
        self._notes = ScanNotes(resources.store.scanners, lifeline.worker.id)
        self._thread = ServiceThread("scanners", self._answer)

    def start(self) -> None:
        """Begin to answer nudges."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more nudges. A running scan ends with its page."""
        self._thread.stop()

    def nudge(self) -> None:
        """Scan soon. Does not wait."""
        self._thread.wake()

    def nudged(self) -> None:
        """Scan soon, because a beat sent a nudge."""
        self._notes.by_beat = True
        self.nudge()

    def _answer(self) -> float | None:
        """Answer a nudge. Return 0 to scan again at once if there is more to do; None otherwise."""
        self._overdue_collections = None
        if self._in_outage_grace():
            return None  # the next nudge tries again
        more = self._scan(self._wanted())
        for side_job in self._side_jobs:
            try:
                side_job.take_if_due()
            except Exception:  # caused by what another program wrote
                log.exception("%s failed", type(side_job).__name__)
        return 0.0 if more else None

    def _in_outage_grace(self) -> bool:
        try:
            return self._lifeline.judging.in_outage_grace(self._look_for_overdue)
        except Exception:  # caused by what another program wrote: the scanners report it, and go on
            log.exception("could not look for overdue records")
            return False

    def _look_for_overdue(self) -> datetime:
        """Look up which collections have overdue records. Return the time of the look, by MongoDB's clock."""
        overdue = self._due.look()
        self._overdue_collections = overdue.collections
        return overdue.at

    def _wanted(self) -> list[Scanner[Any]]:
        """Return the scanners that have something to do, or have not run for LOOK_AT_ALL_EVERY seconds. The others have
        nothing overdue."""
        now, overdue = time.monotonic(), self._overdue_collections
        if overdue is None:  # usually the servers are away, which the scanners report
            self._operate()
            return self._scanners
        if schema.OPERATIONS in overdue or now - self._ran_at.get(schema.OPERATIONS, -math.inf) > LOOK_AT_ALL_EVERY:
            self._ran_at[schema.OPERATIONS] = now
            self._operate()
        long_idle = {
            scanner.name
            for scanner in self._scanners
            if now - self._ran_at.get(scanner.name, -math.inf) > LOOK_AT_ALL_EVERY
        }
        # Silent workers are known in this process, without a look at MongoDB.
        return [scanner for scanner in self._scanners if scanner.name in {schema.WORKERS, *overdue, *long_idle}]

    def _scan(self, wanted: Sequence[Scanner[Any]]) -> bool:
        """Run these scanners, a turn each. Return whether any of them has more to do."""
        self.busy, more = True, False
        for scanner in self._scanners:
            if scanner not in wanted:
                self._notes.take(scanner.look_past())
                continue
            self._ran_at[scanner.name] = time.monotonic()
            try:
                result = scanner.run_once(TURN)
            except Exception:  # a scanner that fails must not end the others
                log.exception("%s scan failed", scanner.name)
                continue
            self._notes.take(result)
            if result.seconds > LONG:
                self._notes.tell()  # the others may take long as well, and other workers wait for this record
            more = more or result.more
        self.busy = False
        self._notes.tell()
        return more


class NudgeConsumer(bootsteps.ConsumerStep):  # type: ignore[misc]
    """The consumer of the queue of nudges, besides the consumer of the actors' queues."""

    scanning: Scanning | None = None
    operating: Operating | None = None
    consuming: QueueConsumption | None = None

    def get_consumers(self, channel: Any) -> list[Consumer]:
        if self.scanning is None:
            return []
        queue = Queue(NUDGE, Exchange(""), routing_key=NUDGE)
        return [Consumer(channel, queues=[queue], callbacks=[self._nudged], accept=["json"], no_ack=True)]

    def start(self, c: Any) -> None:
        super().start(c)
        if self.consuming is not None:
            self.consuming.set_others(self.consumers or ())
            self.consuming.hold_or_resume_others()

    def stop(self, c: Any) -> None:
        """Stop as Celery's own step does. Celery asks the connection which errors to ignore, but after an outage the
        connection is None."""
        super().stop(c if c.connection is not None else SimpleNamespace(connection=c.app.connection_for_read()))

    def _nudged(self, _body: Any, _message: Any) -> None:
        if self.scanning is not None:
            self.scanning.nudged()
        if self.operating is not None and (self.scanning is None or self.scanning.busy):
            self.operating.nudge()


class ScanNotes:
    """A writer of scan notes, which from time to time records the runs of one worker's scanners. Not thread-safe,
    because all scanners run in one thread."""

    def __init__(self, scanners: Scanners, worker: str) -> None:
        self._scanners, self._worker = scanners, worker
        self._unwritten: dict[str, ScannerRun] = {}
        self._noted_at = -math.inf
        self.by_beat = False
        """Whether a beat's nudge was taken since the last record. Set by another thread."""

    def take(self, result: ScanResult) -> None:
        """Keep a run for the next record."""
        earlier = self._unwritten.get(result.scanner) or ScannerRun(id=result.scanner)
        self._unwritten[result.scanner] = ScannerRun(
            id=result.scanner,
            seconds=result.seconds,
            looked_at=earlier.looked_at + result.looked_at,
            repaired=earlier.repaired + result.repaired.total(),
            worker=self._worker,
            error=result.error,
        )

    def tell(self) -> None:
        """Write the runs kept so far, unless the last record is younger than TELL_EVERY seconds. Do not raise if
        MongoDB is away."""
        now = time.monotonic()
        if not self._unwritten or now - self._noted_at < TELL_EVERY:
            return
        by_beat, self.by_beat = self.by_beat, False
        try:
            self._scanners.note(*self._unwritten.values(), by_beat=by_beat)
        except StoreError as error:
            self.by_beat = self.by_beat or by_beat
            names = ", ".join(self._unwritten)
            log.warning("%s scan not noted (%s): `recovery doctor` will report that it did not run", names, error)
            return
        self._unwritten.clear()
        self._noted_at = now
