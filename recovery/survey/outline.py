"""From an outline to a snapshot good enough to suspect: only what is live is read in full.

Most decisions of a running process are over too. Of those, and of what waits, rules ask for nothing but the
state and the children, which the outline has. So a healthy running process costs a read of a handful of
decisions, by key and many processes at once. What comes of it is a suspicion, unless it is of single tasks
alone: a finding that is reported or repaired is made from a snapshot that was read whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from recovery.records import Child, Decision, DecisionState, Graph, Process, ProcessState, from_document
from recovery.records.ids import SEPARATOR, split_record_id
from recovery.rules import OF_SINGLE_TASKS, SPOILT, Finding, Snapshot, Surroundings, judge_process
from recovery.store.client import Document
from recovery.store.record_reading import Read
from recovery.survey.read import Outline

WAITING, FINISHED = DecisionState.WAITING.value, DecisionState.FINISHED.value
BROKEN = ProcessState.BROKEN.value
NOT_READ = ""


@dataclass(frozen=True, slots=True)
class Source:
    """What is read of a page of outlines besides."""

    decisions: Callable[[Sequence[str]], Read[Decision]]
    """Decisions in full, by key."""
    tasks: Callable[[Sequence[str]], Mapping[str, Sequence[str]]]
    """{process: its tasks that have a Task record}."""
    listed: Callable[[Sequence[str]], Mapping[str, Mapping[str, float]]]
    """What broken processes are listed for."""


@dataclass(frozen=True, slots=True)
class Besides:
    """What was read."""

    live: Mapping[str, Decision]
    tasks: Mapping[str, Sequence[str]]
    listed: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """What outlines show."""

    certain: list[tuple[Snapshot, list[Finding]]]
    """Processes with nothing but findings on single tasks, whose decisions were read in full and after all else: what
    such a decision shows was so when its process was read as running."""
    suspects: list[str]
    """Ids of the others on which a rule finds something, or that can't be read in part: to be read whole."""


def suspect(outlines: Sequence[Outline], around: Surroundings, source: Source) -> Suspicion:
    """Judge processes in outline."""
    ids = [outline.process["_id"] for outline in outlines]
    broken = [outline.process["_id"] for outline in outlines if outline.process.get("state") == BROKEN]
    found = source.decisions([key for outline in outlines for key in live_keys(outline)])
    damaged = {split_record_id(damage.record)[0] for damage in found.damaged}
    live = {decision.id: decision for decision in found.records}
    besides = Besides(live, source.tasks(ids), source.listed(broken) if broken else {})
    told = Suspicion([], [])
    for outline in outlines:
        process_id = outline.process["_id"]
        if process_id in damaged:
            told.suspects.append(process_id)
            continue
        try:
            snapshot = to_snapshot(outline, besides)
            findings = judge_process(snapshot, around)
        except SPOILT:  # of documents that nobody decoded, or by what no rule can compare
            told.suspects.append(process_id)
            continue
        if findings and all(one.rule in OF_SINGLE_TASKS for one in findings):
            told.certain.append((snapshot, list(findings)))
        elif findings:
            told.suspects.append(process_id)
    return told


def live_keys(outline: Outline) -> Iterable[str]:
    """Keys of the decisions of which rules ask for more than an outline has."""
    is_open = _names(outline.graphs[0].get("notFinished") if outline.graphs else None)
    named = _broken_for(outline) if outline.process.get("state") == BROKEN else ()
    place = len(outline.process["_id"]) + len(SEPARATOR)
    for key, decision in zip(outline.keys, outline.decisions, strict=True):
        state = decision.get("state")
        over = state == FINISHED and "recoveryTime" not in decision and key[place:] not in is_open
        if (not over and state != WAITING) or key[place:] in named:
            yield key


def _broken_for(outline: Outline) -> set[str]:
    """Tasks of which it has to be known whether they failed; without a graph that tells, all."""
    if not outline.graphs:
        return {split_record_id(key)[1] for key in outline.keys}
    process, error = outline.process, outline.process.get("error")
    named = process.get("startTask"), error.get("task") if isinstance(error, dict) else None
    # Something else may stand there, of which there is no set: even a text that is code.
    return _names(outline.graphs[0].get("failed")) | {task for task in named if type(task) is str}


def _names(found: Any) -> set[str]:
    return {*found} if isinstance(found, dict) else set()


def to_snapshot(outline: Outline, besides: Besides) -> Snapshot:
    """The process as far as it was read. One that lost a decision since the outline keeps it in outline."""
    process_id = outline.process["_id"]
    place = len(process_id) + len(SEPARATOR)
    return Snapshot(
        process_id=process_id,
        process=from_document(Process, outline.process | {"args": NOT_READ} | _error(outline.process)),
        graph=from_document(Graph, outline.graphs[0]) if outline.graphs else None,
        decisions={
            key[place:]: besides.live.get(key) or _in_outline(decision)
            for key, decision in zip(outline.keys, outline.decisions, strict=True)
        },
        tasks=frozenset(besides.tasks.get(process_id, ())),
        listed=besides.listed.get(process_id),
    )


def _error(process: Document) -> Document:
    """Of a process's error nothing counts but its task, which alone was read."""
    error = process.get("error")
    return {"error": {"kind": NOT_READ, "message": NOT_READ, **error}} if isinstance(error, dict) else {}


def _in_outline(decision: Document) -> Decision:
    children, epoch = decision.get("children", ()), decision.get("epoch")
    epoch = 0 if epoch is None else epoch
    if not children:
        return _bare(decision["state"], epoch)
    return Decision(
        id=decision["_id"],
        actor=NOT_READ,
        state=DecisionState(decision["state"]),
        epoch=epoch,
        children=tuple(_child(child["_id"]) for child in children),
    )


@lru_cache(maxsize=100)
def _bare(state: str, epoch: int) -> Decision:
    """Stands for any decision of which nothing else counts; most are such, and making one takes its time."""
    return Decision(id=NOT_READ, actor=NOT_READ, state=DecisionState(state), epoch=epoch)


@lru_cache(maxsize=10_000)
def _child(task: str) -> Child:
    """Ids are derived from the parent's and the place, so processes of one type share theirs."""
    return Child(id=task, actor=NOT_READ, args=NOT_READ)
