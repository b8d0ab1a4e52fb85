"""Checks of what finds the overdue: does a beat nudge, does somebody scan, and do the scanners keep up?

A scanner runs only upon a nudge, and its worker notes that it ran. So a fresh note of any scanner says that a beat
nudges and a worker answers; a single old note says that this scanner fails; fresh notes and records long overdue say
that scanners can't keep up. Without a worker that lives, however fresh a note is, no scanner runs, and of a beat
nothing is known: no worker would answer it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from recovery.durations import show_age
from recovery.engine import Resources
from recovery.errors import BrokerError
from recovery.health.model import Check, Level, join_names, ok, problem, warning
from recovery.records import ScannerRun
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner, ScheduleScanner, WorkerScanner
from recovery.scan.scanner import MAX_SECONDS
from recovery.store.views.overview import DEADLINES

SCANNERS = tuple(one.name for one in (WorkerScanner, DecisionScanner, GraphScanner, ProcessScanner, ScheduleScanner))
NUDGES = "recovery.nudge"
"""The queue of `recovery.worker.config`, which is not imported here: a command needs no Celery."""

QUIET = MAX_SECONDS + 10.0
"""A scan with much to do takes so long, and its note is written within 5 s; and some nudges more."""
NUDGES_WAITING = 5
"""A worker takes a nudge in milliseconds, also while its pool is full."""
LATE, VERY_LATE = 10.0, 60.0
"""Seconds that a record may be overdue: a few are normal, a minute is not (docs/metrics.md)."""


def beat(resources: Resources) -> Check:
    """A beat nudges, and a worker answered not long ago."""
    runs, now = resources.store.scanners.all(), resources.store.now()
    alive = bool(resources.store.overview.workers_alive())
    try:
        waiting = _waiting(resources)
    except BrokerError:
        waiting = None
    return judge_beat(_last(runs), now, _quiet(resources), waiting, alive)


def judge_beat(last: datetime | None, now: datetime, quiet: float, waiting: int | None, workers: bool) -> Check:
    """What the last answer to a nudge means; `waiting` nudges are in the queue, None: Redis does not answer;
    `workers`: there are some."""
    ago = (now - last).total_seconds() if last else None
    found = "no nudge was ever answered" if ago is None else f"last nudge answered {show_age(ago)} ago"
    if waiting is None:
        return problem("beat", f"{found}; none comes while Redis does not answer", "see `redis`")
    if not workers:
        found = f"not known, since no worker is alive to answer a nudge; {found}, {waiting} waiting"
        return warning("beat", found, "start workers, see `workers`; then ask again")
    if ago is not None and ago <= quiet:
        return ok("beat", found)
    if waiting:
        return warning(
            "beat", f"{found}; {waiting} waiting", "see `nudges`: a beat runs, or did, and no worker answers it"
        )
    advice = (
        "start the service that runs your beat, or one by hand: `recovery beat`. If one runs: does it use this Redis "
        "and the workers' RECOVERY_MESSAGE_KEY, and do workers have RECOVERY_SCANNERS on?"
    )
    return problem("beat", f"{found}, and none waits", advice)


def nudges(resources: Resources) -> Check:
    """Nudges are taken: the queue is nearly empty."""
    waiting = _waiting(resources)
    if waiting < NUDGES_WAITING:
        return ok("nudges", f"{waiting} waiting")
    advice = "start a worker with RECOVERY_SCANNERS on; it takes all of them at once"
    return warning("nudges", f"{waiting:,} waiting in {NUDGES}: no worker answers the beat", advice)


def scanners(resources: Resources) -> Check:
    """Each scanner runs, was not cut off, and nothing is overdue for long."""
    overview = resources.store.overview
    overdue = {name: overview.oldest_overdue(name) for name in DEADLINES}
    runs, now = resources.store.scanners.all(), resources.store.now()
    return judge_scanners(overdue, runs, now, _quiet(resources), bool(overview.workers_alive()))


def judge_scanners(
    overdue: Mapping[str, float], runs: Mapping[str, ScannerRun], now: datetime, quiet: float, workers: bool
) -> Check:
    """What the longest overdue records and the last runs mean; `overdue` is {collection: seconds}, `workers`: there are
    some."""
    elsewhere = "see `beat`" if workers else "start workers, see `workers`"
    oldest = max(overdue.values(), default=0.0)
    late = {name: seconds for name, seconds in overdue.items() if seconds > LATE}
    found = [f"overdue for up to {show_age(seconds)}: {name}" for name, seconds in late.items()]
    last = _last(runs)
    running = workers and last is not None and (now - last).total_seconds() <= quiet
    if not running:
        found.append(f"none runs{'' if workers else ', since no worker is alive'}: {_last_run(last, now)}")
    silent = [name for name in SCANNERS if running and _age(runs, name, now) > quiet]
    cut_off = [f"{name} ({run.error})" for name, run in runs.items() if run.error]
    if silent:
        found.append(f"do not run, though others do: {join_names(silent)}")
    if cut_off:
        found.append(f"last run cut off: {join_names(cut_off)}")
    if silent:
        return problem("scanners", "; ".join(found), "read the workers' log: these scanners fail")
    if oldest > LATE:
        advice = "they run, but can't keep up: start more workers, and look at MongoDB's load" if running else elsewhere
        return Check("scanners", Level.PROBLEM if oldest > VERY_LATE else Level.WARNING, "; ".join(found), advice)
    if not running:
        return warning("scanners", "; ".join(found), elsewhere)
    if cut_off:
        return warning("scanners", "; ".join(found), "the next nudge goes on; if it stays, read the workers' log")
    lasted = max(run.seconds for run in runs.values())
    overdue_now = f"overdue for {show_age(oldest)} at most" if oldest else "nothing overdue"
    return ok("scanners", f"{overdue_now}; the longest last run took {show_age(lasted)}")


def _last(runs: Mapping[str, ScannerRun]) -> datetime | None:
    return max((run.ran_at for run in runs.values() if run.ran_at), default=None)


def _last_run(last: datetime | None, now: datetime) -> str:
    return f"the last ran {show_age((now - last).total_seconds())} ago" if last else "none ever ran"


def _age(runs: Mapping[str, ScannerRun], name: str, now: datetime) -> float:
    ran_at = runs[name].ran_at if name in runs else None
    return (now - ran_at).total_seconds() if ran_at else float("inf")


def _quiet(resources: Resources) -> float:
    return QUIET + 5 * resources.settings.scan_interval


def _waiting(resources: Resources) -> int:
    return resources.broker.depths([NUDGES])[NUDGES]
