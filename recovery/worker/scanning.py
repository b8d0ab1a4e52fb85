"""Answers Celery beat: a nudge makes the scanners of one worker run, in a thread of its parent process.

Not in the pool, which may be full of long attempts just when recovery is wanted. Nudges that come while a scan
runs are one more scan, however many they are. What beat sends while nobody takes it would grow in Redis, which does
not drop what has expired (kombu hands over `expires`, and its Redis transport keeps the message): so whoever sends a
nudge cuts the queue to the last few (`beat.keep_short`). An old nudge is taken like a new one: to tell them apart by an
expiry would compare beat's clock with this worker's, and a wrong one would end all scans. Where no beat nudges, or its
nudges get lost, workers nudge themselves (`Lifeline`).

Runs are noted in MongoDB (`ScanNotes`). By these notes `recovery doctor` reports whether a beat nudges and somebody
scans, and workers see that somebody does.
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
"""Seconds after which a scan with more to do lets the others have their turn: a machine that dies in the middle of a
storm is found by one of them. A page is not cut short: the others wait for its end. One that is requeued takes well
below a second; where each task of it fails or is applied by itself, a thousand (`scan_batch`) take some seconds, and
what a dead machine had claimed is found so much later."""


LONG = 0.5
"""Seconds of a scanner's run after which it is noted before the next scanner runs."""

LOOK_AT_ALL_EVERY = 30.0
"""Seconds between two runs of a scanner that nothing is overdue for: so long may a record that lacks its deadline, or
has one that is none, wait until it is found."""
TELL_EVERY = 1.5
"""Seconds between two notes: those of all scanners are one small write. With a nudge each second, a cluster that scans
has a note that is no older than two seconds."""


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
        self._overdue: frozenset[str] | None = None
        self.busy = False
        """Whether scanners run just now, and it is not known what came up meanwhile."""
        self._errands = (CensusTaker(resources.store), CountsTaker(resources.store))
        self._notes = ScanNotes(resources.store.scanners, lifeline.worker.id)
        self._thread = ServiceThread("scanners", self._answer)

    def start(self) -> None:
        """Begin to answer nudges."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more nudges. A scan that runs ends with its page."""
        self._thread.stop()

    def nudge(self) -> None:
        """Scan soon. Does not wait."""
        self._thread.wake()

    def nudged(self) -> None:
        """Scan soon, because a beat sent a nudge."""
        self._notes.by_beat = True
        self.nudge()

    def _answer(self) -> float | None:
        """Answer a nudge. Return 0 if there is more to do, so that it scans again at once."""
        self._overdue = None
        if self._in_outage_grace():
            return None  # nudges go on
        more = self._scan(self._wanted())
        for errand in self._errands:
            try:
                errand.take_if_due()
            except Exception:  # of what another program wrote
                log.exception("%s failed", type(errand).__name__)
        return 0.0 if more else None

    def _in_outage_grace(self) -> bool:
        try:
            return self._lifeline.judging.in_outage_grace(self._look)
        except Exception:  # of what another program wrote: whoever scans says it, and goes on
            log.exception("what is overdue was not seen")
            return False

    def _look(self) -> datetime:
        """Ask what is overdue. Return the time of that look."""
        looked = self._due.look()
        self._overdue = looked.collections
        return looked.at

    def _wanted(self) -> list[Scanner[Any]]:
        """Return the scanners that have something to do, or have not looked for a while. For the others nothing is
        overdue."""
        now, due = time.monotonic(), self._overdue
        if due is None:  # the servers are away, mostly, and the scanners say so
            self._operate()
            return self._scanners
        if schema.OPERATIONS in due or now - self._ran_at.get(schema.OPERATIONS, -math.inf) > LOOK_AT_ALL_EVERY:
            self._ran_at[schema.OPERATIONS] = now
            self._operate()
        looked_long_ago = {
            one.name for one in self._scanners if now - self._ran_at.get(one.name, -math.inf) > LOOK_AT_ALL_EVERY
        }
        # Of workers it is known here who is silent.
        return [one for one in self._scanners if one.name in {schema.WORKERS, *due, *looked_long_ago}]

    def _scan(self, wanted: Sequence[Scanner[Any]]) -> bool:
        """Run these scanners, a turn each. Return whether any has more to do."""
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
                self._notes.tell()  # the others may take long as well, and other workers wait for a word
            more = more or result.more
        self.busy = False
        self._notes.tell()
        return more


class NudgeConsumer(bootsteps.ConsumerStep):  # type: ignore[misc]
    """Consumes the nudges' queue beside the actors' queues."""

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
        """Stop as Celery's own does, which asks the connection which errors to ignore: after an outage it is None."""
        super().stop(c if c.connection is not None else SimpleNamespace(connection=c.app.connection_for_read()))

    def _nudged(self, _body: Any, _message: Any) -> None:
        if self.scanning is not None:
            self.scanning.nudged()
        if self.operating is not None and (self.scanning is None or self.scanning.busy):
            self.operating.nudge()


class ScanNotes:
    """Notes what one worker's scanners did, now and then. Not safe for threads: scanners run in one."""

    def __init__(self, scanners: Scanners, worker: str) -> None:
        self._scanners, self._worker = scanners, worker
        self._waiting: dict[str, ScannerRun] = {}
        self._noted_at = -math.inf
        self.by_beat = False
        """Whether a beat's nudge was taken since the last note. Set by another thread."""

    def take(self, result: ScanResult) -> None:
        """Keep a run for the next note."""
        before = self._waiting.get(result.scanner) or ScannerRun(id=result.scanner)
        self._waiting[result.scanner] = ScannerRun(
            id=result.scanner,
            seconds=result.seconds,
            looked_at=before.looked_at + result.looked_at,
            repaired=before.repaired + result.repaired.total(),
            worker=self._worker,
            error=result.error,
        )

    def tell(self) -> None:
        """Write what waits, if the last note is not fresh. Does not raise for a database that is away."""
        now = time.monotonic()
        if not self._waiting or now - self._noted_at < TELL_EVERY:
            return
        by_beat, self.by_beat = self.by_beat, False
        try:
            self._scanners.note(*self._waiting.values(), by_beat=by_beat)
        except StoreError as error:
            self.by_beat = self.by_beat or by_beat
            names = ", ".join(self._waiting)
            log.warning("%s scan not noted (%s): `recovery doctor` takes it for not done", names, error)
            return
        self._waiting.clear()
        self._noted_at = now
