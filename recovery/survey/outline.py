"""Judge processes by outlines, to find suspects. Only live decisions are read completely.

Most decisions of a running process are finished. Of finished and waiting decisions, rules need only the state and the
children, which the outline has. So a healthy running process costs a read of a few decisions, by key and for many
processes at once. The result is a suspicion, except for findings on single tasks: findings that are reported or
repaired are made from snapshots that were read completely.
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
    """Functions that read additional data for a page of outlines."""

    decisions: Callable[[Sequence[str]], Read[Decision]]
    """Reads decisions completely, by id."""
    tasks: Callable[[Sequence[str]], Mapping[str, Sequence[str]]]
    """Reads the names of tasks with a Task record, by process id."""
    listed: Callable[[Sequence[str]], Mapping[str, Mapping[str, float]]]
    """Reads the tasks that broken processes are listed for."""


@dataclass(frozen=True, slots=True)
class Besides:
    """The additional data of a page of outlines."""

    live: Mapping[str, Decision]
    tasks: Mapping[str, Sequence[str]]
    listed: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The result of judging outlines."""

    certain: list[tuple[Snapshot, list[Finding]]]
    """Processes with findings on single tasks only. Their decisions were read completely and after everything else,
    so the findings were true while the process was running."""
    suspects: list[str]
    """Ids of other processes with findings, or that can't be read in part. They must be read completely."""


def suspect(outlines: Sequence[Outline], around: Surroundings, source: Source) -> Suspicion:
    """Judge processes by their outlines."""
    ids = [outline.process["_id"] for outline in outlines]
    broken = [outline.process["_id"] for outline in outlines if outline.process.get("state") == BROKEN]
    decisions = source.decisions([key for outline in outlines for key in live_keys(outline)])
    damaged = {split_record_id(damage.record)[0] for damage in decisions.damaged}
    live = {decision.id: decision for decision in decisions.records}
    additional = Besides(live, source.tasks(ids), source.listed(broken) if broken else {})
    suspicion = Suspicion([], [])
    for outline in outlines:
        process_id = outline.process["_id"]
        if process_id in damaged:
            suspicion.suspects.append(process_id)
            continue
        try:
            snapshot = to_snapshot(outline, additional)
            findings = judge_process(snapshot, around)
        except SPOILT:  # raw documents may hold values that can't be decoded or compared
            suspicion.suspects.append(process_id)
            continue
        if findings and all(finding.rule in OF_SINGLE_TASKS for finding in findings):
            suspicion.certain.append((snapshot, list(findings)))
        elif findings:
            suspicion.suspects.append(process_id)
    return suspicion


def live_keys(outline: Outline) -> Iterable[str]:
    """Yield the ids of decisions of which rules need more than the outline has."""
    is_open = _names(outline.graphs[0].get("notFinished") if outline.graphs else None)
    named_tasks = _broken_for(outline) if outline.process.get("state") == BROKEN else ()
    task_start = len(outline.process["_id"]) + len(SEPARATOR)
    for key, decision in zip(outline.keys, outline.decisions, strict=True):
        state = decision.get("state")
        is_at_rest = state == FINISHED and "recoveryTime" not in decision and key[task_start:] not in is_open
        if (not is_at_rest and state != WAITING) or key[task_start:] in named_tasks:
            yield key


def _broken_for(outline: Outline) -> set[str]:
    """Return the tasks whose failure must be checked; all tasks if there is no graph."""
    if not outline.graphs:
        return {split_record_id(decision_id)[1] for decision_id in outline.keys}
    process, error = outline.process, outline.process.get("error")
    candidates = process.get("startTask"), error.get("task") if isinstance(error, dict) else None
    # Damaged values may be unhashable, so only texts are taken.
    return _names(outline.graphs[0].get("failed")) | {task for task in candidates if type(task) is str}


def _names(value: Any) -> set[str]:
    return {*value} if isinstance(value, dict) else set()


def to_snapshot(outline: Outline, besides: Besides) -> Snapshot:
    """Return the snapshot of a process as far as it was read.

    A decision that has been removed since keeps its outline.
    """
    process_id = outline.process["_id"]
    task_start = len(process_id) + len(SEPARATOR)
    return Snapshot(
        process_id=process_id,
        process=from_document(Process, outline.process | {"args": NOT_READ} | _error(outline.process)),
        graph=from_document(Graph, outline.graphs[0]) if outline.graphs else None,
        decisions={
            key[task_start:]: besides.live.get(key) or _in_outline(decision)
            for key, decision in zip(outline.keys, outline.decisions, strict=True)
        },
        tasks=frozenset(besides.tasks.get(process_id, ())),
        listed=besides.listed.get(process_id),
    )


def _error(process: Document) -> Document:
    """Return the error of a process with placeholders, because only its task was read and no other field is needed."""
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
    """Return a decision with a state and an epoch only. Cached, because most decisions need nothing else."""
    return Decision(id=NOT_READ, actor=NOT_READ, state=DecisionState(state), epoch=epoch)


@lru_cache(maxsize=10_000)
def _child(task: str) -> Child:
    """Return a child with an id only.

    Cached: task ids are derived from parents and positions, so many processes share them.
    """
    return Child(id=task, actor=NOT_READ, args=NOT_READ)
