"""The lifeline of a worker, in threads of its parent process: heartbeats, and what is known at once.

Every `heartbeat_interval` it writes the worker's record with a
new deadline and the statistics of those of its queues whose polls Redis answers, and looks whether a worker of the same
host is gone; that one's claims are requeued at once (`rescue`), and what a child ran when the pool tells that it died.
With the setting `events` off it does neither: then everything is found by its deadline alone.

With each beat it reads which actors are blocked, and has their queues not consumed. Its record tells of it only after
all slots know, so what nobody consumes by the records nobody begins. When an operator's command tells of a change, all
of that is done at once.

While heartbeats fail it has nothing consumed: what this worker takes it could not do. And where no worker noted a scan
for a while (no beat runs, or its nudges get lost) it nudges its own scanners.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from zlib import crc32

from recovery.engine import LastRun, Recovery
from recovery.errors import StoreError, StoreUnavailable
from recovery.log_lines import Seldom
from recovery.queue import MessageId
from recovery.records import FailingSlots, HungSlot, Worker
from recovery.records.ids import holder
from recovery.store import Store
from recovery.store.views.lifeline_queries import HeartbeatLook
from recovery.store.views.overview import time_limit
from recovery.threads import ServiceThread
from recovery.worker.identity import is_gone
from recovery.worker.lifeline.judging import Judging
from recovery.worker.lifeline.rescue import Rescue
from recovery.worker.lifeline.served_queues import ServedQueues
from recovery.worker.messages.queue_consumption import POLLS, Polls, QueueConsumption

log = logging.getLogger(__name__)

BEATS_APART = 0.1
"""Seconds from a heartbeat to one that somebody asks for, at least: whoever reaches Redis may ask all the time."""
STOP_TIMEOUT = 5.0
"""Seconds that the end of a worker waits for a heartbeat that is being written."""
TRY, AGAIN = 1 / 4, 1 / 4
"""Of a heartbeat timeout, what a heartbeat takes at most, and what its second try may take, which follows at once. With
the interval between two they leave room for one that fails altogether."""

SAID_EVERY = 60.0
"""Seconds between two lines on heartbeats that are not written."""

MANY = 50
"""Of more workers than that each looks at all others with every second heartbeat: somebody does in between."""


class Lifeline:
    """Keeps one worker's record alive. `start` in the parent process, after the pool has forked."""

    def __init__(self, app: Recovery, worker: Worker, consuming: QueueConsumption, polls: Polls = POLLS) -> None:
        self.worker = worker
        self._consuming = consuming
        self._polls = polls
        self.hung: Callable[[], tuple[HungSlot, ...]] = tuple
        """What its record tells of slots that hang."""
        self.failing: Callable[[], FailingSlots | None] = lambda: None
        """What its record tells of slots that claim tasks and run none."""
        self.may_take: Callable[[], bool] = lambda: True
        """Whether its slots can run what it takes."""
        self._app = app
        self._settings = app.settings
        # A connection that died without a word costs one try here, and none of the others' calls.
        self._own = Store(app.settings, within=TRY * app.settings.heartbeat_timeout)
        self._scan_soon = threading.Event()
        self.nudge: Callable[[], None] = _nothing
        """Has the scanners of this worker run, if it has some."""
        self._said = Seldom(log, SAID_EVERY)
        self._looked: HeartbeatLook | None = None
        """What the last heartbeat saw of the others, if it looked."""
        self._looks_first = crc32(worker.id.encode()) % 2 == 0
        """Whether it is of the half of all workers that look at the others while the other half does without."""
        self._next_beat = time.monotonic()
        """When the next heartbeat is due, by the monotonic clock."""
        self._asked_to_look = False
        self._made_at, self._nobody_scans = time.monotonic(), False
        self._away_since: float | None = None
        self._away_by: set[type[StoreError]] = set()
        """The kinds of errors by which no heartbeat was written since then."""
        self._stepped, self._is_new = False, True
        self.judging = Judging(app.settings, self._own.now, self._clock_stepped)
        """Whether this worker may call others lost, and scan."""
        self._queues = ServedQueues(app, self._own, worker, polls, self.judging.clock)
        self._rescue = Rescue(app)
        apart = min(BEATS_APART, app.settings.heartbeat_interval)
        self._beating = ServiceThread("lifeline", self._beat_in_turn, first=0.0, apart=apart)

    def start(self) -> None:
        """Begin to beat."""
        self._polls.on_return = self._polls_returned
        self._beating.start()
        self._rescue.start()

    def _polls_returned(self) -> None:
        """Report at once that Redis answers again, and look at the queues: Redis may have been away, and have lost its
        data."""
        self._scan_soon.set()
        self._look_soon()

    def _look_soon(self) -> None:
        self._asked_to_look = True
        self._beating.wake()

    def stop(self) -> None:
        """Stop beating; the record stays until it is removed or found overdue."""
        self._beating.stop()
        self._rescue.stop()
        self._beating.stop(timeout=STOP_TIMEOUT)

    def record_taken(self, queue: str, message: MessageId) -> None:
        """Note that the worker took a message from a queue. Called for every message, so it must be cheap."""
        self._queues.record_taken(queue, message)

    def child_died(self, pid: int, how: str = "", ran: LastRun | None = None) -> None:
        """Rescue what a pool process had claimed that died while it ran something; `how`, as in 'was ended by signal 9
        (SIGKILL)', and what it `ran`, if that is known."""
        if self._settings.events and not self._beating.is_ending:
            log.warning("pool process %d %s; what it had claimed is requeued", pid, how or "died")
            self._rescue.gone(holder(self.worker.id, pid), how, ran)

    def hold(self) -> None:
        """Take nothing until a heartbeat finds that `may_take` is true. The worker's record shows the reason at
        once."""
        self._consuming.hold()
        self._beating.wake()

    def on_blocked_message(self) -> None:
        """Look at once which actors are blocked, because a message of a blocked actor came. Otherwise it comes
        again."""
        self._look_soon()

    @property
    def database_name(self) -> str:
        """The name of the database on which this worker works."""
        return self._settings.database

    def settings_changed(self) -> None:
        """Read settings and blocked actors again: slots when they next need them, the lifeline at once."""
        if self._settings.events:
            self._app.resources.store.preferences.invalidate()
            self._look_soon()

    def _beat_in_turn(self) -> float:
        """Beat, and return the seconds until the next heartbeat.

        A heartbeat that somebody asked for comes in between and moves none of the others. Otherwise workers that are
        asked at once, by an operator's command or by the end of an outage, would beat at the same time from then on.
        """
        interval = self._settings.heartbeat_interval
        if (late := time.monotonic() - self._next_beat) >= 0:
            self._next_beat += interval * (1 + late // interval)
        self.beat_once()
        return max(0.0, self._next_beat - time.monotonic())

    def beat_once(self) -> None:
        """Write one heartbeat and do what follows it. Raises nothing, because a worker that works without heartbeats
        would be taken for dead."""
        written = False
        try:
            paused, neighbours = self._beat()
            written = True
            self._log_return()
            if self._scan_soon.is_set() and self._settings.events:
                self._scan_soon.clear()
                self._nobody_scans = True
            if self._nobody_scans:
                self.nudge()
            self._follow_up(paused, neighbours)
        except StoreError as error:
            if written:
                # An outage that begins here has its line by the next heartbeat.
                say = log.debug if isinstance(error, StoreUnavailable) else self._said.warning
                say("what follows a heartbeat was not done (%s); with the next one", error)
            else:
                # One line when it begins, and one for each other kind of cause: `_log_return` says when it is over.
                kind = StoreUnavailable if isinstance(error, StoreUnavailable) else type(error)
                log.log(
                    logging.DEBUG if kind in self._away_by else logging.WARNING,
                    "no heartbeat is written (%s): until one is, no task and no nudge is taken",
                    error, extra={"recovery_outage": True},
                )  # fmt: skip
                self.judging.was_not_served(outage=isinstance(error, StoreUnavailable))
                self._away_since = self._away_since or time.monotonic()
                self._away_by.add(kind)
        except Exception:  # nothing may end the thread; the next heartbeat is soon
            log.exception("heartbeat failed")
        finally:
            if written and self.may_take():
                self._consuming.go_on()
            else:
                self._consuming.hold()

    def _log_return(self) -> None:
        """Log that heartbeats are written again, if it was logged that they were not."""
        if self._away_since is not None:
            log.warning("MongoDB takes heartbeats again, after %.0f s", time.monotonic() - self._away_since)
            self._away_since = None
            self._away_by.clear()

    def _beat(self) -> tuple[frozenset[str], Sequence[Worker]]:
        """Look at the other workers, and write this worker's record. Return which of its queues are not consumed, and
        the workers of its host."""
        began, again = time.monotonic(), False
        neighbours: Sequence[Worker] = ()
        try:
            with time_limit(TRY * self._settings.heartbeat_timeout):
                looked = self._look_at_others()
                neighbours = looked.neighbours
                if self._consuming.pause(looked.blocked):
                    self._app.resources.store.preferences.invalidate()  # before we tell: a slot's own look may be older
                if self.judging.clock.least(0.0) is None:
                    self.judging.look_at_clock()
                self.judging.saw(looked.deadlines, self._write())
        except StoreUnavailable as error:
            # Nothing is taken that could not be done. What others do can be seen later; that we live, they must see.
            self._consuming.hold()
            log.debug("heartbeat not written (%s); again at once, on another connection", error)
            again = True
            with time_limit(AGAIN * self._settings.heartbeat_timeout):
                self._write()
        smoothly = not again and time.monotonic() - began <= self._settings.heartbeat_interval
        self.judging.was_served(smoothly)
        return self._consuming.paused, neighbours

    def _write(self) -> datetime:
        """Write this worker's record. Return when that was, by MongoDB's clock."""
        paused, timeout = self._consuming.paused, self._settings.heartbeat_timeout
        polls = self._queues.statistics(paused)
        record = self.worker.evolve(
            paused=tuple(sorted(paused)),
            hung=self.hung(),
            failing=self.failing(),
            polls=polls,
            clock_ahead=self.judging.clock.wall_ahead,
        )
        now = self.judging.look_at_clock(lambda: self._own.workers.beat(record, timeout))
        if self.worker.started_at is None:
            # Kept: a record that others removed while this worker was cut off must not make its version the newest.
            self.worker = self.worker.evolve(started_at=now)
        return now

    def _look_at_others(self) -> HeartbeatLook:
        last, self._looked, self._nobody_scans = self._looked, None, False
        asked, self._asked_to_look = self._asked_to_look, False  # who asks while it looks is answered by the next
        in_turn = self.judging.is_served() and not asked
        if last is not None and len(last.deadlines) > MANY and in_turn:
            return last
        looked = self._own.heartbeat_view.look(self.worker.host)
        unseen = min(looked.scanned_ago, time.monotonic() - self._made_at)
        self._nobody_scans = unseen > self._settings.scanned_within
        # All are asked at once, or are back at once. If then all did without the next look, nobody would take one.
        self._looked = looked if in_turn or self._looks_first else None
        return looked

    def _follow_up(self, paused: frozenset[str], neighbours: Sequence[Worker]) -> None:
        """Do what follows a heartbeat. It may fail again and again without this worker being cut off."""
        if self._stepped:
            self._extend_claims()
        self._queues.look_at_returned(paused)
        if self._settings.events:
            self._requeue_refused()
            self._rescue_neighbours(neighbours)

    def _requeue_refused(self) -> None:
        """Requeue tasks that other workers refuse, because this one may accept them. Done once, after the worker is
        registered."""
        if self._is_new and self.worker.queues:
            self._own.task_deadlines.hurry_refused(self.worker.queues, self.worker.application_version)
        self._is_new = False

    def _clock_stepped(self) -> None:
        self._stepped = True
        self._beating.wake()

    def _extend_claims(self) -> None:
        """Extend the deadline of each attempt that this worker runs, because a step of the clock has used none of their
        time."""
        decisions, preferences = self._own.decisions, self._app.resources.store.preferences
        for queue in self.worker.queues:
            holds = preferences.actor(self._app.actors[queue].preferences)
            decisions.extend_all(self.worker.id, queue, holds.worker_timeout, holds.task_limit)
        self._stepped = False

    def _rescue_neighbours(self, neighbours: Sequence[Worker]) -> None:
        """Rescue what workers of this host had claimed whose process is gone."""
        for gone in [worker.id for worker in neighbours if worker.id != self.worker.id and is_gone(worker)]:
            log.warning("gone from this host: %s; what it had claimed is requeued", gone)
            self._rescue.gone(gone)


def _nothing() -> None:
    return
