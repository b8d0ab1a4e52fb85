"""One process, judged by the scanners' own rules and repaired by the scanners' own repairs.

What a scanner would do at the next deadline is done at once; there is no second code path. A finding that asks to
wait (no worker serves the queue) or only to report is left: no write of ours would change what it says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from recovery.engine import Outbox, Resources
from recovery.engine.operators.auditing import audited
from recovery.errors import ProcessNotFound, StoreError
from recovery.health import untaken_tasks, versions
from recovery.records import given
from recovery.repair import Done, ReadProcesses, Repairer, diagnose, readings
from recovery.rules import Finding, Repair, Snapshot, Surroundings
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner

SOURCE = "operator"
"""Who had the process repaired, as the log of repairs names it."""
LEFT_ALONE = frozenset({Repair.WAIT, Repair.REPORT})
MAX_ROUNDS = 5
"""A repair may show what it hid: a rebuilt graph what is ready in it. More than this is a repair that does not help."""

CATCH_UP_TIMEOUT = 2.0
"""Seconds that a look waits for the majority: a thousand times what it takes while all is well."""


@dataclass(frozen=True, slots=True)
class Examination:
    """A process as it was read, and what is wrong with it: nothing, if `findings` is empty."""

    snapshot: Snapshot
    findings: tuple[Finding, ...]
    around: Surroundings


@dataclass(frozen=True, slots=True)
class Deadline:
    """A live record, when it is looked at next, and by which scanner."""

    record: str
    what: str
    at: datetime
    scanner: str


def look(resources: Resources, process_id: str) -> Examination:
    """Judge a process as the Graph scanner does, whether a deadline is past or not, and tell what of it waits for
    nobody. Raises ProcessNotFound."""
    return _look(resources, given.text(process_id, "process_id"))


def repair(
    resources: Resources, examined: Examination, reason: str = "", *, by: str | None = None
) -> tuple[Done, Examination]:
    """Repair what was found, and judge again: {rule: repairs that changed something}, and how it is now."""
    with audited(resources, "check repair", examined.snapshot.process_id, reason, by=by) as outcome:
        done, examined = _repair(resources, examined)
        outcome.text = ", ".join(f"{rule} {count}" for rule, count in done.items()) or "nothing to repair"
    return done, examined


def _repair(resources: Resources, examined: Examination) -> tuple[Done, Examination]:
    repairer = Repairer(resources, Outbox(resources), SOURCE)
    done: Done = Counter()
    for _ in range(MAX_ROUNDS):
        todo = [finding for finding in examined.findings if finding.repair not in LEFT_ALONE]
        if not todo:
            break
        changed = repairer.repair(todo, examined.around).done
        done += changed
        examined = _look(resources, examined.snapshot.process_id)
        if not changed:
            break
    return done, examined


def deadlines(snapshot: Snapshot) -> list[Deadline]:
    """Return the deadlines of the process's live records, the next one first."""
    return sorted(_deadlines(snapshot), key=lambda one: one.at)


def _look(resources: Resources, process_id: str) -> Examination:
    with suppress(StoreError):  # it is told as it was, then
        resources.store.catch_up(CATCH_UP_TIMEOUT)
    reading = _read(resources, process_id)
    if not _has_any(reading.snapshots[0]) and resources.store.processes.is_there(process_id):
        reading = _read(resources, process_id)  # the majority has it by now
    (snapshot,) = reading.snapshots
    if not _has_any(snapshot):
        where = f"database {resources.settings.database}"
        raise ProcessNotFound(f"no process has the id {process_id!r} in {where}; `recovery start` prints ids")
    # Only who asks for one process has the time to read all that its tasks were given, and gave.
    known = {(damage.kind, damage.record) for damage in snapshot.damaged}
    texts = [one for one in resources.store.damaged.texts(process_id) if (one.kind, one.record) not in known]
    snapshot = replace(snapshot, damaged=(*snapshot.damaged, *texts))
    diagnosis = diagnose(resources, ReadProcesses([snapshot], reading.begun_at))
    # Scanners tell what waits for nobody at its deadlines, which are ever rarer; who asks is told at once.
    actors = {decision.actor for decision in snapshot.decisions.values()}
    queues = resources.store.waiting.by_actor(count_served=False, wanted=actors)
    pinned = versions.pinned_in_vain(resources, snapshot.decisions.values())
    found = untaken_tasks.findings(snapshot, diagnosis.findings, queues, pinned)
    return Examination(snapshot, tuple(found), diagnosis.around)


def _read(resources: Resources, process_id: str) -> ReadProcesses:
    return next(readings(resources.store, [process_id], committed=True, thorough=[process_id]))


def _has_any(snapshot: Snapshot) -> bool:
    return bool(snapshot.process or snapshot.graph or snapshot.decisions or snapshot.tasks or snapshot.damaged)


def _deadlines(snapshot: Snapshot) -> Iterator[Deadline]:
    process, graph = snapshot.process, snapshot.graph
    if process is not None and process.recovery_time:
        yield Deadline(process.id, f"process, {process.state}", process.recovery_time, ProcessScanner.name)
    if graph is not None and graph.recovery_time:
        what = f"graph, {len(graph.not_finished)} open"
        yield Deadline(graph.id, what, graph.recovery_time, GraphScanner.name)
    for decision in snapshot.decisions.values():
        if decision.recovery_time:
            what = f"{decision.actor}, {decision.state}"
            yield Deadline(decision.id, what, decision.recovery_time, DecisionScanner.name)
