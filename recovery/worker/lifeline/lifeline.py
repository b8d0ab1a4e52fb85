"""The lifeline of a worker, in threads of its parent process: heartbeats, and immediate reactions to known failures.

Every `heartbeat_interval` it writes the worker's record, with a new deadline and the statistics of those of its queues
whose polls Redis answers. It then checks whether another worker of this host is gone, and requeues that worker's claims
at once (`rescue`). It does the same for a child of its own when the pool reports that the child died. With the setting
`events` off it does neither: then every failure is found by its deadline.

Each heartbeat also reads which actors are blocked, and stops the consumption of their queues. The worker's record shows
these queues as paused only after all slots know of it. So no task begins of a queue that, by the records, no worker
consumes. When an operator's command reports a change, all of this is done at once.

While heartbeats fail the worker consumes nothing, because it could not do what it takes. If no worker has recorded a
scan for a while (no beat runs, or its nudges get lost), the worker nudges its own scanners.
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
"""Minimum seconds between a heartbeat and a requested one, because whoever reaches Redis may request them all the time.
"""
STOP_TIMEOUT = 5.0
"""Seconds that the end of a worker waits for a heartbeat in progress."""
TRY, AGAIN = 1 / 4, 1 / 4
"""Time limits of a heartbeat, and of its second try, which follows at once, as fractions of a heartbeat timeout.
Together with the interval they leave time for one heartbeat that fails completely."""

SAID_EVERY = 60.0
"""Seconds between two log lines about the steps after a heartbeat."""

MANY = 50
"""With more workers than this, each looks at all others only with every second heartbeat, because others look in
between."""


class Lifeline:
    """The thread that keeps one worker's record alive. Call `start` in the parent process, once the pool has forked."""

    def __init__(self, app: Recovery, worker: Worker, consuming: QueueConsumption, polls: Polls = POLLS) -> None:
        self.worker = worker
        self._consuming = consuming
        self._polls = polls
        self.hung: Callable[[], tuple[HungSlot, ...]] = tuple
        """Returns the hung slots, for the worker's record."""
        self.failing: Callable[[], FailingSlots | None] = lambda: None
        """Returns the report on slots that claim tasks but run none, for the worker's record."""
        self.may_take: Callable[[], bool] = lambda: True
        """Returns whether the worker's slots can run tasks."""
        self._app = app
        self._settings = app.settings
        # Its own store, so that a connection that died unnoticed costs one try here, and no call of others.
        self._own = Store(app.settings, within=TRY * app.settings.heartbeat_timeout)
        self._scan_soon = threading.Event()
        self.nudge: Callable[[], None] = _nothing
        """Makes the scanners of this worker run, if it has any."""
        self._limited_log = Seldom(log, SAID_EVERY)
        self._last_look: HeartbeatLook | None = None
        """The last look at the other workers, which the next heartbeat may reuse; None if it must look itself."""
        self._looks_first = crc32(worker.id.encode()) % 2 == 0
        """Whether this worker is in the half of all workers that may skip a look after all have looked at once."""
        self._next_beat = time.monotonic()
        """When the next heartbeat is due, by the monotonic clock."""
        self._look_requested = False
        self._made_at, self._nobody_scans = time.monotonic(), False
        self._away_since: float | None = None
        self._away_by: set[type[StoreError]] = set()
        """The kinds of errors because of which no heartbeat was written since `_away_since`."""
        self._stepped, self._is_new = False, True
        self.judging = Judging(app.settings, self._own.now, self._clock_stepped)
        """Decides whether this worker may declare others lost, and may scan."""
        self._queues = ServedQueues(app, self._own, worker, polls, self.judging.clock)
        self._rescue = Rescue(app)
        apart = min(BEATS_APART, app.settings.heartbeat_interval)
        self._beating = ServiceThread("lifeline", self._beat_in_turn, first=0.0, apart=apart)

    def start(self) -> None:
        """Begin to write heartbeats."""
        self._polls.on_return = self._polls_returned
        self._beating.start()
        self._rescue.start()

    def _polls_returned(self) -> None:
        """Report at once that Redis answers again, and look at the queues, because Redis may have been away and have
        lost its data."""
        self._scan_soon.set()
        self._look_soon()

    def _look_soon(self) -> None:
        self._look_requested = True
        self._beating.wake()

    def stop(self) -> None:
        """Stop heartbeats. The record stays until it is removed or found overdue."""
        self._beating.stop()
        self._rescue.stop()
        self._beating.stop(timeout=STOP_TIMEOUT)

    def record_taken(self, queue: str, message: MessageId) -> None:
        """Note that the worker took a message from a queue. Called for every message, so it must be cheap."""
        self._queues.record_taken(queue, message)

    def child_died(self, pid: int, how: str = "", ran: LastRun | None = None) -> None:
        """Rescue the claims of a pool process that died.

        Args:
            pid: The id of the process.
            how: How it ended, as in 'was ended by signal 9 (SIGKILL)'; empty if unknown.
            ran: What it ran when it died, if that is known.
        """
        if self._settings.events and not self._beating.is_ending:
            log.warning("pool process %d %s; its claims are requeued", pid, how or "died")
            self._rescue.gone(holder(self.worker.id, pid), how, ran)

    def hold(self) -> None:
        """Take nothing until a heartbeat finds `may_take` true. The worker's record shows the reason at once."""
        self._consuming.hold()
        self._beating.wake()

    def on_blocked_message(self) -> None:
        """Look at once which actors are blocked, because a message of a blocked actor arrived. Otherwise the same
        message would arrive again."""
        self._look_soon()

    @property
    def database_name(self) -> str:
        """The name of the worker's database."""
        return self._settings.database

    def settings_changed(self) -> None:
        """Read settings and blocked actors again: slots do so when they next need them, the lifeline at once."""
        if self._settings.events:
            self._app.resources.store.preferences.invalidate()
            self._look_soon()

    def _beat_in_turn(self) -> float:
        """Beat, and return the seconds until the next regular heartbeat.

        A requested heartbeat comes in between, and does not move the regular ones. Otherwise workers that are all asked
        at once, by an operator's command or by the end of an outage, would beat at the same time from then on.
        """
        interval = self._settings.heartbeat_interval
        if (overdue_by := time.monotonic() - self._next_beat) >= 0:
            self._next_beat += interval * (1 + overdue_by // interval)
        self.beat_once()
        return max(0.0, self._next_beat - time.monotonic())

    def beat_once(self) -> None:
        """Write one heartbeat and do the steps that follow it. Raise nothing, because a worker that works without
        heartbeats would be taken for dead."""
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
                # An outage that begins here is logged by the next heartbeat.
                log_line = log.debug if isinstance(error, StoreUnavailable) else self._limited_log.warning
                log_line("could not finish the steps after a heartbeat (%s); retried with the next heartbeat", error)
            else:
                # One line when the outage begins, and one for each other kind of cause. `_log_return` logs the end.
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
        """Log that heartbeats are written again, if the outage was logged."""
        if self._away_since is not None:
            log.warning("MongoDB takes heartbeats again, after %.0f s", time.monotonic() - self._away_since)
            self._away_since = None
            self._away_by.clear()

    def _beat(self) -> tuple[frozenset[str], Sequence[Worker]]:
        """Look at the other workers, and write this worker's record.

        Returns:
            The worker's queues that are not consumed, and the workers of its host.
        """
        started, retried = time.monotonic(), False
        neighbours: Sequence[Worker] = ()
        try:
            with time_limit(TRY * self._settings.heartbeat_timeout):
                look = self._look_at_others()
                neighbours = look.neighbours
                if self._consuming.pause(look.blocked):
                    # before the record shows it: a slot's own look may be older
                    self._app.resources.store.preferences.invalidate()
                if self.judging.clock.least(0.0) is None:
                    self.judging.look_at_clock()
                self.judging.saw(look.deadlines, self._write())
        except StoreUnavailable as error:
            # Take nothing that could not be done. The other workers can be looked at later, but they must see now that
            # this worker lives.
            self._consuming.hold()
            log.debug("heartbeat not written (%s); retried at once on another connection", error)
            retried = True
            with time_limit(AGAIN * self._settings.heartbeat_timeout):
                self._write()
        smoothly = not retried and time.monotonic() - started <= self._settings.heartbeat_interval
        self.judging.was_served(smoothly)
        return self._consuming.paused, neighbours

    def _write(self) -> datetime:
        """Write this worker's record. Return the time of the write, by MongoDB's clock."""
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
            # Kept, because a record that others removed while this worker was cut off must not make its version the
            # newest.
            self.worker = self.worker.evolve(started_at=now)
        return now

    def _look_at_others(self) -> HeartbeatLook:
        previous_look, self._last_look, self._nobody_scans = self._last_look, None, False
        # a request during this look is answered by the next look
        was_requested, self._look_requested = self._look_requested, False
        is_regular = self.judging.is_served() and not was_requested
        if previous_look is not None and len(previous_look.deadlines) > MANY and is_regular:
            return previous_look
        look = self._own.heartbeat_view.look(self.worker.host)
        unscanned_for = min(look.scanned_ago, time.monotonic() - self._made_at)
        self._nobody_scans = unscanned_for > self._settings.scanned_within
        # Requests and outages concern all workers at once. If then all of them skipped the next look, none would look.
        self._last_look = look if is_regular or self._looks_first else None
        return look

    def _follow_up(self, paused: frozenset[str], neighbours: Sequence[Worker]) -> None:
        """Do the steps that follow a heartbeat. They may fail repeatedly without this worker being cut off."""
        if self._stepped:
            self._extend_claims()
        self._queues.look_at_returned(paused)
        if self._settings.events:
            self._requeue_refused()
            self._rescue_neighbours(neighbours)

    def _requeue_refused(self) -> None:
        """Requeue tasks that other workers refuse, because this worker may accept them. Done once, after the worker is
        registered."""
        if self._is_new and self.worker.queues:
            self._own.task_deadlines.hurry_refused(self.worker.queues, self.worker.application_version)
        self._is_new = False

    def _clock_stepped(self) -> None:
        self._stepped = True
        self._beating.wake()

    def _extend_claims(self) -> None:
        """Extend the deadline of each attempt that this worker runs, because a step of the clock used up none of their
        time."""
        decisions, preferences = self._own.decisions, self._app.resources.store.preferences
        for queue in self.worker.queues:
            actor_preferences = preferences.actor(self._app.actors[queue].preferences)
            decisions.extend_all(self.worker.id, queue, actor_preferences.worker_timeout, actor_preferences.task_limit)
        self._stepped = False

    def _rescue_neighbours(self, neighbours: Sequence[Worker]) -> None:
        """Rescue the claims of workers of this host whose process is gone."""
        for worker_id in [worker.id for worker in neighbours if worker.id != self.worker.id and is_gone(worker)]:
            log.warning("worker %s is gone from this host; its claims are requeued", worker_id)
            self._rescue.gone(worker_id)


def _nothing() -> None:
    return
