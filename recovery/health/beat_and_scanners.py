"""Checks of what finds the overdue: does a beat nudge, does a worker take its nudges, does somebody scan, and do the
scanners keep up?

Each is asked of who knows. A beat leaves word in Redis when it nudges; workers note in MongoDB that they scanned, and
when one of them last took a beat's nudge. So it shows whether there is no beat, whether its nudges wait untaken, if
somebody takes them and does not scan, and whether workers scan by themselves, as they do where none has for a while.
Each bound is what is promised: a beat leaves word each second, notes of scans are two seconds apart, and workers scan
by themselves `scanned_within` seconds after the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from recovery.engine import Resources
from recovery.errors import BrokerError
from recovery.health.model import Cause, Check, Level, join_names, ok, problem, warning
from recovery.queue.message import NUDGE
from recovery.records import ScannerRun
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner, ScheduleScanner, WorkerScanner
from recovery.store.views.overview import DEADLINES
from recovery.wording import show_age

SCANNERS = tuple(one.name for one in (WorkerScanner, DecisionScanner, GraphScanner, ProcessScanner, ScheduleScanner))
NUDGES_WAITING = 5
"""A worker takes a nudge in milliseconds, also while its pool is full."""
LATE, VERY_LATE = 10.0, 60.0
"""Seconds that a record may be overdue: a few are normal, a minute is not (docs/metrics.md)."""
TURNS = 15.0
"""Seconds by which a scanner's note may be older than the freshest: each of the others has its turn before."""
BY_THEMSELVES = 2
"""Times `scanned_within` that pass at most between two scans of workers that no beat nudges."""
NOTES_APART = 2.0
"""Seconds between two notes of scans."""
BUSY = 1.5
"""Seconds of a scanner's run from which on it had more to do than its turn of two has room for, or nearly."""


@dataclass(frozen=True, slots=True)
class Nudging:
    """What is known of a beat and of the workers that take its nudges. Ages are in seconds."""

    sent_ago: float | None
    """Since a beat nudged; None: no beat did, or none that says so in Redis."""
    taken_ago: float | None
    """Since a worker took a beat's nudge and scanned; None: never."""
    scanned_ago: float | None
    """Since any scan was noted; None: never."""
    waiting: int
    """Nudges in the queue."""


def beat(resources: Resources) -> Check:
    """A beat nudges, and workers take its nudges and scan."""
    runs, now = resources.store.scanners.all(), resources.store.now()
    alive = bool(resources.store.overview.workers_alive())
    sent_ago, waiting = resources.broker.nudged_ago(), _waiting(resources)
    seen = Nudging(sent_ago, _ago((run.nudged_at for run in runs.values()), now), _ago(_ran(runs), now), waiting)
    settings = resources.settings
    return judge_beat(seen, settings.scanned_within, alive, sent_within=settings.nudged_within)


def missing_beat(resources: Resources) -> str | None:
    """Return what is to be said of a beat that does not nudge, and what to do; None if one does, or no worker lives."""
    check = beat(resources)
    return f"{check.found}; {check.advice}" if check.cause in (Cause.NO_BEAT, Cause.SCANS_WITHOUT_BEAT) else None


def judge_beat(seen: Nudging, within: float, workers: bool, *, sent_within: float) -> Check:
    """What that means; a beat's nudge is taken `within` as many seconds, and a beat leaves word `sent_within` as many.
    `workers`: there are some."""
    sent = seen.sent_ago is not None and seen.sent_ago <= sent_within
    # A beat whose word in Redis is old has ended, though what it sent last was taken just now.
    silent = seen.sent_ago is not None and not sent
    taken = not silent and seen.taken_ago is not None and seen.taken_ago <= within
    # Who scans by himself begins after `within`, and notes it some heartbeats later.
    scanned = seen.scanned_ago is not None and seen.scanned_ago <= BY_THEMSELVES * within
    # Until then the last scan is the one that the last nudge asked for.
    scanned = scanned and (seen.taken_ago is None or (seen.scanned_ago or 0.0) < seen.taken_ago)
    found = (
        f"last nudge taken {show_age(seen.taken_ago)} ago" if seen.taken_ago is not None else "no nudge was ever taken"
    )
    if seen.sent_ago is not None:
        found = f"last nudge sent {show_age(seen.sent_ago)} ago; {found}"
    if not workers:
        advice = "start workers, see `workers`; then ask again"
        return warning("beat", Cause.NO_WORKERS, f"no worker is alive to take a nudge; {found}", advice)
    # Notes are that far apart: the last nudge was taken, and another one is not due yet.
    if taken or (sent and seen.taken_ago is not None and seen.taken_ago - (seen.sent_ago or 0.0) <= NOTES_APART):
        return ok("beat", found)
    if seen.waiting:
        advice = (
            "a beat runs, or did. See `polls` and `heartbeats`: workers don't reach Redis or MongoDB, or have "
            "RECOVERY_SCANNERS off"
        )
        return warning("beat", Cause.NUDGES_NOT_TAKEN, f"{found}; {seen.waiting} wait in Redis, untaken", advice)
    by_themselves = f"; workers scan by themselves, the last {show_age(seen.scanned_ago)} ago" if scanned else ""
    if sent:
        advice = (
            "a beat runs, and somebody takes its nudges and notes no scan. Where MongoDB was away until just now scans "
            "wait for a heartbeat timeout: ask again. Else see `heartbeats`, `polls` and the workers' logs for one "
            "that hangs or does not reach MongoDB, and whether another cluster shares this Redis"
        )
        return warning("beat", Cause.NUDGES_LOST, f"{found}{by_themselves}", advice)
    advice = (
        "start the service that runs your beat, or one by hand: `recovery beat`. If one runs: does it use this Redis "
        "and the workers' RECOVERY_MESSAGE_KEY, and do workers have RECOVERY_SCANNERS on?"
    )
    if by_themselves:
        return problem("beat", Cause.SCANS_WITHOUT_BEAT, f"no beat nudges: {found}{by_themselves}", advice)
    found = f"no beat nudges: {found}, and none waits; no worker scans by itself yet"
    return problem("beat", Cause.NO_BEAT, found, advice)


def nudges(resources: Resources) -> Check:
    """Nudges are taken: the queue is nearly empty."""
    waiting = _waiting(resources)
    if waiting < NUDGES_WAITING:
        return ok("nudges", f"{waiting} waiting")
    advice = "start a worker with RECOVERY_SCANNERS on, or see `polls`; one takes all of them at once"
    found = f"{waiting:,} waiting in {NUDGE}: no worker takes them"
    return warning("nudges", Cause.NUDGES_NOT_TAKEN, found, advice)


def scanners(resources: Resources) -> Check:
    """Each scanner runs, was not cut off, and nothing is overdue for long."""
    overview = resources.store.overview
    overdue = {name: overview.oldest_overdue(name) for name in DEADLINES}
    runs, now = resources.store.scanners.all(), resources.store.now()
    within, sent_ago = resources.settings.scanned_within, _sent_ago(resources)
    no_beat = sent_ago is not None and sent_ago > resources.settings.nudged_within
    if sent_ago is None:
        taken_ago = _ago((run.nudged_at for run in runs.values()), now)
        no_beat = taken_ago is None or taken_ago > within
    return judge_scanners(overdue, runs, now, within, bool(overview.workers_alive()), no_beat=no_beat)


def judge_scanners(
    overdue: Mapping[str, float],
    runs: Mapping[str, ScannerRun],
    now: datetime,
    within: float,
    workers: bool,
    *,
    no_beat: bool = False,
) -> Check:
    """What the longest overdue records and the last runs mean; `overdue` is {collection: seconds}, some scan is noted
    `within` as many seconds, `workers`: there are some; with `no_beat` these scan by themselves, less often."""
    within = BY_THEMSELVES * within if no_beat else within
    oldest = max(overdue.values(), default=0.0)
    late = {name: seconds for name, seconds in overdue.items() if seconds > LATE}
    found = [f"overdue for up to {show_age(seconds)}: {name}" for name, seconds in late.items()]
    level = Level.PROBLEM if oldest > VERY_LATE else Level.WARNING
    last = _ago(_ran(runs), now)
    if not workers or last is None or last > within:
        since = "none ever ran" if last is None else f"the last ran {show_age(last)} ago"
        found.append(f"none runs{'' if workers else ', since no worker is alive'}: {since}")
        advice = (
            "where MongoDB was away until just now scans wait for a heartbeat timeout: ask again. Else see `beat`, "
            "`redis` and `writes`: without nudges workers scan by themselves, unless they have RECOVERY_SCANNERS off "
            "or don't reach MongoDB"
        )
        return Check(
            "scanners", level, Cause.NO_SCANS, "; ".join(found),
            advice if workers else "start workers, see `workers`",
        )  # fmt: skip
    silent = [name for name in SCANNERS if _age(runs, name, now) > last + within + TURNS]
    cut_off = [f"{name} ({run.error})" for name, run in runs.items() if run.error]
    if cut_off:
        found.append(f"last run cut off: {join_names(cut_off)}")
    if silent:
        found.append(f"do not run, though others do: {join_names(silent)}")
        advice = "read the workers' log: these scanners fail"
        return problem("scanners", Cause.SCANNERS_FAIL, "; ".join(found), advice)
    if late and no_beat:
        advice = "no beat nudges, so workers scan by themselves, less often: see `beat`"
        return Check("scanners", level, Cause.SCANS_WITHOUT_BEAT, "; ".join(found), advice)
    if late:
        return _late(level, found, [run.seconds for name, run in runs.items() if name in late])
    if cut_off:
        advice = "the next nudge goes on; if it stays, read the workers' log"
        return warning("scanners", Cause.SCANNERS_FAIL, "; ".join(found), advice)
    lasted = max(run.seconds for run in runs.values())
    overdue_now = f"overdue for {show_age(oldest)} at most" if oldest else "nothing overdue"
    return ok("scanners", f"{overdue_now}; the longest last run took {show_age(lasted)}")


def _late(level: Level, found: Iterable[str], lasted: Iterable[float]) -> Check:
    """What it means that records are long overdue while scanners run, whose last runs took so many seconds."""
    if max(lasted, default=0.0) >= BUSY:
        advice = "they run, but can't keep up: start more workers, and look at MongoDB's load"
        return Check("scanners", level, Cause.SCANNERS_BEHIND, "; ".join(found), advice)
    advice = (
        "scanners run and have time left: ask again, as it passes after an outage; if it stays, read the workers' log"
    )
    return Check("scanners", level, Cause.RECORDS_OVERDUE, "; ".join(found), advice)


def _ran(runs: Mapping[str, ScannerRun]) -> Iterable[datetime | None]:
    return [run.ran_at for run in runs.values()]


def _ago(moments: Iterable[datetime | None], now: datetime) -> float | None:
    """Seconds since the latest of these; None if there is none."""
    last = max((moment for moment in moments if moment is not None), default=None)
    return max(0.0, (now - last).total_seconds()) if last is not None else None


def _age(runs: Mapping[str, ScannerRun], name: str, now: datetime) -> float:
    ran_at = runs[name].ran_at if name in runs else None
    return (now - ran_at).total_seconds() if ran_at else float("inf")


def _sent_ago(resources: Resources) -> float | None:
    """Seconds since a beat left word that it nudged; None if that is not known."""
    try:
        return resources.broker.nudged_ago()
    except BrokerError:  # another check reports that
        return None


def _waiting(resources: Resources) -> int:
    return resources.broker.depths([NUDGE])[NUDGE]
