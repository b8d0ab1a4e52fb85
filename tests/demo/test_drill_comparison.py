"""A drill's figures against the ledger's: those that are true agree, and each lie is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recovery.demo import ledger
from recovery.demo.drill_comparison import Compared, compare
from recovery.demo.ledger import Flight
from recovery.drill.canary_actor import DELAY, HOLD, WORKER_TIMEOUT, CanaryKind, Victim
from recovery.drill.drill_report import DrillReport, measured
from recovery.drill.sightings import Canary, Sighting, Step, promised
from recovery.records.ids import START_TASK, child_task_id, new_process_id, started_at
from recovery.settings import Settings

STEP, WAIT, DROP = (child_task_id(START_TASK, 0, place) for place in range(3))
LAST = child_task_id(STEP, 0, 0)
DROPPED, KILLED = WORKER_TIMEOUT + 0.4, HOLD + 0.3
"""Seconds from the first claim of a task to its requeue."""


def flown(
    canary: Canary, task: str, claim: float, *, requeued: float | None = None, pids: tuple[int, ...] = (11,)
) -> list[Flight]:
    """A task as the records had it, claimed so many seconds after its process's start, and its lines."""
    start = started_at(canary.id)

    def at(seconds: float) -> datetime:
        return start + timedelta(seconds=seconds)

    again = None if requeued is None else claim + requeued
    last = claim if again is None else again + 0.05
    canary.tasks[task] = Sighting(
        attempts=len(pids), first_claim=at(claim), first_deadline=at(claim + WORKER_TIMEOUT), first_holder="w11#11",
        last_claim=at(last), requeued=None if again is None else at(again), finished=at(last + 0.01),
    )  # fmt: skip
    begun = [at(one).timestamp() + 0.005 for one in (claim, last)[: len(pids)]]
    return [
        Flight(canary.id, task, place + 1, moment, pid, f"w{pid}#{pid}")
        for place, (moment, pid) in enumerate(zip(begun, pids, strict=True))
    ]


def flight() -> tuple[list[Canary], list[Flight]]:
    """A round and a kill of a worker, as they were."""
    canary = Canary(new_process_id(), CanaryKind.ROUND, None, {})
    killer = Canary(new_process_id(), CanaryKind.KILL, Victim.WORKER, {})
    for one in (canary, killer):
        one.started, one.ended = started_at(one.id), True
    lines = [
        *flown(canary, START_TASK, 0.1),
        *flown(canary, STEP, 0.13),
        *flown(canary, LAST, 0.16),
        *flown(canary, WAIT, 0.11 + DELAY + 0.6),
        *flown(canary, DROP, 0.2, requeued=DROPPED, pids=(11, 12)),
        *flown(killer, START_TASK, 0.1, requeued=KILLED, pids=(11, 13)),
    ]
    return [canary, killer], lines


def held(canaries: list[Canary], lines: list[Flight]) -> Compared:
    promises = {step: promised(step, Settings()) for step in Step}
    probes = [probe for one in canaries for probe in one.probes(WORKER_TIMEOUT)]
    report = DrillReport("d", len(canaries), 1.0, measured(probes, promises), (), canaries)
    return compare(report, lines)


def test_what_is_true_agrees() -> None:
    found = held(*flight())
    assert (found.disagreements, found.problems, found.notes) == ([], [], [])
    assert found.compared == 8


def moved(canary: Canary, task: str, **fields: float) -> None:
    """The records say that something was so much later."""
    for name, seconds in fields.items():
        setattr(canary.tasks[task], name, getattr(canary.tasks[task], name) + timedelta(seconds=seconds))


LIES: dict[str, tuple[Callable[[list[Canary], list[Flight]], object], str]] = {
    "a start that took five seconds": (
        lambda c, _: setattr(c[0], "started", c[0].started and c[0].started + timedelta(seconds=5)),
        "start of canary",
    ),
    "a delay that ended sooner": (lambda c, _: moved(c[0], WAIT, first_claim=-3), "delay of canary"),
    "a claim that was lost later": (lambda c, _: moved(c[0], DROP, first_deadline=4), "lost_claim of canary"),
    "a requeue that was sooner": (lambda c, _: moved(c[1], START_TASK, requeued=-4), "killed_worker of canary"),
    "a requeue that was later": (lambda c, _: moved(c[1], START_TASK, requeued=4), "killed_worker of canary"),
    "an attempt that nobody ran": (lambda c, _: setattr(c[0].tasks[STEP], "attempts", 2), "had 2 attempts; the ledger"),
    "an attempt that is in no record": (
        lambda _, lines: lines.append(replace(lines[0], attempt=2)), "had 1 attempt; the ledger has 1, 2"
    ),
    "a canary that nobody saw": (lambda _, lines: lines.clear(), "the ledger does not have its attempts"),
    "a process that lives": (
        lambda _, lines: lines.append(replace(lines.pop(), pid=11)), "ran in process 11, which was to be killed"
    ),
    "a worker that lives": (
        lambda _, lines: lines.append(replace(lines.pop(), worker="w11#13")), "on the worker that was to be killed"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_each_lie_is_told(name: str) -> None:
    lie, told = LIES[name]
    canaries, lines = flight()
    lie(canaries, lines)
    found = held(canaries, lines)
    assert any(told in one for one in found.disagreements), found.disagreements
    assert found.problems


def test_what_never_came_is_a_problem_and_what_came_late_a_note() -> None:
    canaries, lines = flight()
    canaries[0].tasks.pop(WAIT)
    found = held(canaries, [line for line in lines if line.id != WAIT])
    assert found.problems == ["drill: delay did not come about"]
    canaries, lines = flight()
    for task in (DROP,):
        moved(canaries[0], task, requeued=5, last_claim=5, finished=5)
    later = [replace(line, at=line.at + 5) if (line.id, line.attempt) == (DROP, 2) else line for line in lines]
    late = held(canaries, later)
    assert (late.problems, late.notes) == ([], ["drill: lost_claim took 5.4 s, promised are 2 s"])


def test_the_ledger_keeps_both_kinds_of_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ledger.jsonl"
    monkeypatch.setenv(ledger.VARIABLE, str(path))
    at = datetime(2026, 1, 1, tzinfo=UTC).timestamp()
    ledger.append({"process": "p", "id": "i", "task": "t", "nonce": "1", "seen": {}})
    ledger.append({"canary": "c", "id": "start", "attempt": 1, "at": at, "pid": 7, "worker": "w#7"})
    assert [line.nonce for line in ledger.read(path)] == ["1"]
    assert ledger.read_flights(path) == [Flight("c", "start", 1, at, 7, "w#7")]
