"""Checks of workers: are some alive, do they write heartbeats, does Redis answer them, and do their slots run tasks?

A worker may write heartbeats to MongoDB and hear nothing from Redis, behind a firewall that drops, while Redis answers
this machine. It then begins no task and takes no nudge. Its own record says which of its polls were answered (`polls`).

A slot that hangs is freed by its worker's parent process (`worker.slots.hung_slots`) within a `worker_timeout`. It is
reported for a while after that, because what hung will hang again (`slots`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from recovery.engine import Resources
from recovery.errors import BrokerError
from recovery.health.model import Cause, Check, Level, join_names, ok, problem, unasked, warning
from recovery.records import FailingSlots, FreedSlots, ScannerRun, Worker
from recovery.scan import WorkerScanner
from recovery.sweep import SCHEDULED
from recovery.wording import count, printable, show_age, show_duration

START = "start the service that runs your workers, or one by hand: `recovery worker --app package.module:name`"

START_SPARK = "start one where Java is: `recovery worker --queues spark --concurrency 1 --pool threads`"

LOST_TOLD = 120.0
"""Seconds for which a worker that was lost is told of: by then somebody has looked, or it was not missed."""
PING_TIMEOUT = 0.7
"""Seconds for which answers of workers are waited for; each takes milliseconds."""

MISSED = 1.8
"""Heartbeats that a worker wrote without an answered poll: one while its slots fill up is normal."""
RECENT = 600.0
"""Seconds that a freed slot is told of: ten attempts of the default `worker_timeout`."""
SHOWN = 5


def workers(resources: Resources) -> Check:
    """A worker is alive, and none is silent for long."""
    store = resources.store
    alive = store.overview.workers_alive()
    silent = store.workers.silent(100)
    found = f"{len(alive)} alive{f': {join_names(worker.name for worker in alive)}' if alive else ''}"
    if silent:
        found += f"; silent: {join_names(worker.name for worker in silent)}"
    if not alive and (answering := _answering(resources)):
        return judge_heartbeats("workers", set(), answering)
    if not alive:
        return problem("workers", Cause.NO_WORKERS, found, START)
    if not any(worker.queues for worker in alive):  # a sweep's, say
        return problem("workers", Cause.NO_WORKERS, f"{found}; none of them serves an actor", START)
    if silent:
        # Others take what a silent one held and remove its record, within a nudge.
        advice = (
            "they ended, hang, or don't reach MongoDB: see whether they run, and their network to it. What they held "
            "is requeued by others; if they stay listed no scanner runs: see `scanners`"
        )
        return warning("workers", Cause.WORKERS_SILENT, found, advice)
    run = store.scanners.all().get(WorkerScanner.name)
    return judge_lost(found, {worker.name for worker in alive}, run, store.now())


def judge_lost(found: str, alive: Collection[str], run: ScannerRun | None, now: datetime) -> Check:
    """Return what it means that workers were lost a while ago, as their scanner noted, while others live."""
    if run is None or run.lost_at is None or (ago := (now - run.lost_at).total_seconds()) > LOST_TOLD:
        return ok("workers", found)
    if not (lost := [name for name in run.lost if name not in alive]):
        return ok("workers", found)
    found += f"; lost {show_age(max(0.0, ago))} ago: {join_names(lost)}"
    advice = "see whether they run, and their network to MongoDB and Redis; what they held was requeued at once"
    return warning("workers", Cause.WORKERS_LOST, found, advice)


def heartbeats(resources: Resources) -> Check:
    """Each worker that answers through Redis writes heartbeats as well: one without MongoDB has no record, or an
    overdue one, and would look as if it had ended."""
    answering = resources.broker.workers_answering(resources.settings.database, PING_TIMEOUT)
    if answering is None:
        return ok("heartbeats", "not compared with who answers in Redis: this user may not ask")
    return judge_heartbeats(
        "heartbeats", {worker.name for worker in resources.store.overview.workers_alive()}, answering
    )


def _answering(resources: Resources) -> list[str]:
    """Return the workers that answer through Redis; none if that can't be found out."""
    try:
        return resources.broker.workers_answering(resources.settings.database, PING_TIMEOUT) or []
    except BrokerError:
        return []


def judge_heartbeats(check: str, alive: Collection[str], answering: Collection[str]) -> Check:
    """Return what it means which workers write heartbeats and which answer through Redis."""
    without = [name for name in answering if name not in alive]
    if without:
        advice = (
            "where MongoDB was away until just now, ask again. Else look at the network from there to MongoDB, and at "
            "their logs: until then they take no task"
        )
        found = f"run and write no heartbeat to MongoDB: {join_names(without)}"
        level = Level.WARNING if alive else Level.PROBLEM  # nobody is there who does the work
        return Check(check, level, Cause.WORKER_WITHOUT_MONGODB, found, advice)
    return ok(check, f"written by {count(len(alive), 'worker')}")


@dataclass(frozen=True, slots=True)
class Bounds:
    """How old the last answered poll of a queue may be."""

    timeout: timedelta
    """A worker's heartbeat timeout, by which its deadline tells when it beat."""
    missed: timedelta
    """At its last heartbeat, by its own record."""
    within: timedelta
    """How long a worker may take until its first poll is answered."""


def polls(resources: Resources) -> Check:
    """Redis answers the polls of each worker."""
    store, settings = resources.store, resources.settings
    bounds = Bounds(
        timedelta(seconds=settings.heartbeat_timeout),
        timedelta(seconds=max(MISSED * settings.heartbeat_interval, 1.0)),
        timedelta(seconds=settings.polled_within),
    )
    return judge_polls(store.overview.workers_alive(), store.now(), bounds)


def judge_polls(alive: Sequence[Worker], now: datetime, bounds: Bounds) -> Check:
    """Return what the times of the last answers mean."""
    if not alive:
        return unasked("polls", "no worker is alive", "see `workers`")
    older = [one for one in alive if one.started_at is not None and one.started_at < now - bounds.within]
    silent, consumed = [], set[str]()
    for worker in older:
        queues = set(worker.queues).difference(worker.paused)
        consumed |= queues
        unanswered = _unanswered(worker, queues, now, bounds)
        if unanswered:
            silent.append(f"{worker.name} ({_described(unanswered, now)})")
    if not silent:
        return ok("polls", f"{count(len(consumed), 'queue')} polled by {count(len(older), 'worker')}")
    advice = (
        "see whether they reach Redis (address, firewall); their logs tell. Until they do they begin no task and take "
        "no nudge"
    )
    found = f"alive, and Redis does not answer their polls: {join_names(silent)}"
    return problem("polls", Cause.POLLS_UNANSWERED, found, advice)


def _unanswered(worker: Worker, queues: Iterable[str], now: datetime, bounds: Bounds) -> dict[str, datetime | None]:
    """{queue: when its poll was last answered} of those that are silent: all, or none."""
    told = {one.id: one.polled_at for one in worker.polls}
    # What is still to come is nobody's answer.
    moments = {
        queue: moment if (moment := told.get(queue)) and moment < now + bounds.within else None for queue in queues
    }
    beat_at = min(now, worker.recovery_time - bounds.timeout) if worker.recovery_time is not None else now
    since = beat_at - bounds.missed
    unanswered = {queue: moment for queue, moment in moments.items() if moment is None or moment < since}
    # One that is answered hears Redis: what it does not poll was blocked until just now.
    return {} if len(unanswered) < len(moments) else unanswered


def _described(unanswered: Mapping[str, datetime | None], now: datetime) -> str:
    moments = [moment for moment in unanswered.values() if moment is not None]
    return f"for {show_age((now - max(moments)).total_seconds())}" if moments else "never"


def slots(resources: Resources) -> Check:
    """No slot hangs, none was freed of an attempt that hung not long ago, and none claims tasks and runs none."""
    store = resources.store
    return judge_slots(store.overview.workers_alive(), store.hung.freed(), store.now())


def judge_slots(workers: Sequence[Worker], freed: Sequence[FreedSlots], now: datetime) -> Check:
    """Return what the records of live workers say of their slots, and what is kept of slots that were freed."""
    if failing := {worker.name: worker.failing for worker in workers if worker.failing is not None}:
        return _judge_failing(failing)
    hung = [
        f"{slot.actor} {slot.task} on {worker.name} for {_ago(slot.since, now)}"
        for worker in workers
        for slot in worker.hung
    ]
    recent = [
        f"{one.id} {one.slots:,} in all, the last {_ago(one.at, now)} ago on {one.worker} ({one.task})"
        for one in freed
        if abs((now - one.at).total_seconds()) < RECENT  # one still to come would be told of for good
    ]
    found = [f"{len(hung)} of workers that live hang: {_shown(hung)}"] if hung else []
    found += [f"freed of what hung: {_shown(recent)}"] if recent else []
    if not found:
        return ok("slots", "none hangs")
    advice = "each is freed by itself; find out what these functions wait for, and give that a time-out"
    return warning("slots", Cause.SLOTS_HANG, "; ".join(found), f"{advice} (docs/actors.md, 'A function that hangs')")


def spark_worker(resources: Resources) -> Check:
    """A worker serves Spark, in which the sweeps run that beat orders, if one ever has."""
    name, every = "spark", resources.settings.sweep_interval
    if not every:
        return ok(name, "not needed: RECOVERY_SWEEP_INTERVAL is 0, so beat orders no sweep")
    alive = resources.store.workers.spark_workers()
    if alive is None:
        return ok(name, f"no sweep runs, since no worker has ever served Spark; to have them, {START_SPARK}")
    last = resources.store.operations.last_of(SCHEDULED)
    swept = "none was ordered yet"
    if last is not None and last.asked_at is not None:
        ago = max(0.0, (resources.store.now() - last.asked_at).total_seconds())
        swept = f"the last, operation {last.id}, was ordered {show_age(ago)} ago"
    found = f"{count(alive, 'worker')} for a sweep each {show_duration(every)}; {swept}"
    if alive:
        return ok(name, found)
    advice = f"{START_SPARK}; if it is gone for good, set RECOVERY_SWEEP_INTERVAL=0 for all workers and beats"
    return problem(
        name, Cause.SPARK_WORKER_GONE, f"a worker has served the queue spark, and none does: {swept}", advice
    )


def _judge_failing(failing: Mapping[str, FailingSlots]) -> Check:
    told = [
        f"{name}: {count(slots.in_a_row, 'slot')} in a row, the last for {printable(slots.reason)}"
        for name, slots in failing.items()
    ]
    advice = "read the logs of these workers and see what their machines lack; until then they take little or nothing"
    return warning("slots", Cause.SLOTS_FAIL, f"claim tasks and can run none on {_shown(told)}", advice)


def _ago(moment: datetime, now: datetime) -> str:
    return show_age(max(0.0, (now - moment).total_seconds()))


def _shown(found: Sequence[str]) -> str:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
