"""The audit: finds lost results and results that were accepted twice, from the ledger and from the values stored at the
end.

It uses none of the library's counters or judgements, because it searches for bugs in them. Its only sources are what
executions wrote before they returned, which values their successors saw, and which values anyone could read in the
decisions, during the demo and at its end.

A value is *used* when an execution sees it as its parent's value, when the collecting execution sees it as a leaf's
value, when it is in the process's stored result, or when it was read in its task's decision. Every execution makes its
own nonce, and a value is passed on only after it was accepted. Hence:

- Two results of a task were accepted if two of its nonces are used, or if a different nonce is stored than was used. A
  task may have many executions, because killed ones run again, and a late one may even write its line. But only one
  nonce may ever be used, and it must stay. (If the first of two accepted results was never read, the second one did no
  harm.) If a task was created twice, as two tasks of the process, its lines have two ids.
- An accepted result was lost if a used value has no line (no execution made it) or is no longer stored, if a task of a
  finished process has no line or no stored value, if a stored value has no line, if an execution did not see exactly
  its parents, or if the stored result is not what a collecting execution that saw all leaves wrote.

The result is read when the process ends and again at the very end. If a second end replaced the first one's result, two
nonces are used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.demo.ledger import Line
from recovery.wfformat.workload import Run

COLLECT = ""
"""Name of the collecting task, in places where workflow tasks have their name."""

Place = tuple[str, str]
"""(process, workflow task)."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A process that was started: the parents of its tasks, and the values and results that were read."""

    process: str
    parents: Mapping[str, Sequence[str]]
    results: Sequence[Any] = ()
    """All readings of the stored result. Empty if the process has not finished."""
    stored: Mapping[str, Any] | None = None
    """{task id: value in its decision} of finished tasks at the end. None if they were not read."""
    accepted: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """{task id: all values that were read in its decision}."""

    @classmethod
    def of(cls, run: Run) -> RunRecord:
        """Return what the audit needs to know about a process."""
        parents = {task.id: task.parents for task in run.workflow.tasks}
        return cls(run.id, parents, tuple(run.results), run.stored, run.accepted)


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings of the audit."""

    executions: int
    """Lines of workflow tasks. There are more lines than tasks if attempts were interrupted after they wrote their
    line."""
    lost: dict[Place, str] = field(default_factory=dict)
    """{place: what is missing}."""
    accepted_twice: dict[Place, str] = field(default_factory=dict)


def audit(lines: Iterable[Line], processes: Iterable[RunRecord]) -> Audit:
    """Audit the processes of a demo."""
    by_process: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_process[line.process].append(line)
    executions = sum(not line.final for process_lines in by_process.values() for line in process_lines)
    result = Audit(executions)
    for record in processes:
        _Case(record, by_process.get(record.process, [])).judge(result)
    return result


class _Case:
    """The audit of one process."""

    def __init__(self, record: RunRecord, lines: Sequence[Line]) -> None:
        self._record = record
        self._lines = lines
        self._made: dict[str, set[str]] = defaultdict(set)
        self._ids: dict[str, set[str]] = defaultdict(set)
        self._used: dict[str, set[str]] = defaultdict(set)
        for line in lines:
            task = COLLECT if line.final else line.task
            self._made[task].add(line.nonce)
            self._ids[task].add(line.id)
            self._add_used(line.seen)
        for result in record.results:
            if _readable(result):
                self._used[COLLECT].add(result["nonce"])
                self._add_used(result["leaves"])
        for task, ids in self._ids.items():
            accepted_values = [value for task_id in ids for value in record.accepted.get(task_id, ())]
            self._used[task].update(value["nonce"] for value in accepted_values if _has_nonce(value))
        self._stored = self._stored_nonces()

    def _add_used(self, seen: Mapping[str, str]) -> None:
        for task, nonce in seen.items():
            self._used[task].add(nonce)

    def _stored_nonces(self) -> dict[str, set[str]]:
        """Return {task: nonces that are stored for it}. A task that was created twice may have two."""
        nonces: dict[str, set[str]] = {}
        for task, ids in self._ids.items():
            values = (
                [self._record.stored[task_id] for task_id in ids if task_id in self._record.stored]
                if self._record.stored
                else []
            )
            nonces[task] = {str(value.get("nonce") if isinstance(value, dict) else value) for value in values}
        return nonces

    def judge(self, result: Audit) -> None:
        for task, reason in self._accepted_twice():
            result.accepted_twice.setdefault((self._record.process, task), reason)
        for task, reason in self._lost():
            result.lost.setdefault((self._record.process, task), reason)

    def _accepted_twice(self) -> Iterable[tuple[str, str]]:
        for task, nonces in self._used.items():
            if len(nonces) > 1:
                yield task, f"results {', '.join(sorted(nonces))} were both used"
        for task, ids in self._ids.items():
            if len(ids) > 1:
                yield task, f"exists as {', '.join(sorted(ids))}"
        for task, nonces in self._stored.items():
            used = self._used[task]
            if used and (others := (nonces & self._made[task]) - used):
                yield task, f"result {', '.join(sorted(used))} was used, and {', '.join(sorted(others))} is stored"

    def _lost(self) -> Iterable[tuple[str, str]]:
        for task, nonces in self._used.items():
            if unknown := nonces - self._made[task]:
                yield task, f"result {', '.join(sorted(unknown))} was used, and no execution made it"
        for line in self._lines:
            expected = self._leaves() if line.final else set(self._record.parents.get(line.task, ()))
            for task in expected ^ set(line.seen):
                yield task, f"{'' if task in expected else 'wrongly '}{_seen(task, line)}"
        if self._record.stored is not None:
            yield from self._not_stored()
        if self._record.results:
            yield from self._missing()

    def _not_stored(self) -> Iterable[tuple[str, str]]:
        for task, nonces in self._stored.items():
            if self._used[task] and not nonces:
                yield task, f"result {', '.join(sorted(self._used[task]))} was used, and none is stored"
            elif self._record.results and not nonces:
                yield task, "the process has finished, and no result of it is stored"
            if unknown := nonces - self._made[task]:
                yield task, f"result {', '.join(sorted(unknown))} is stored, and no execution made it"

    def _missing(self) -> Iterable[tuple[str, str]]:
        for task in self._record.parents:
            if task not in self._made:
                yield task, "the process has finished, and no execution of it was recorded"
        finals = {line.nonce: line for line in self._lines if line.final}
        for result in self._record.results:
            line = finals.get(result["nonce"]) if _readable(result) else None
            if line is None:
                yield COLLECT, "the stored result belongs to no recorded execution"
            elif dict(line.seen) != result["leaves"]:
                yield COLLECT, "the stored result is not what its execution recorded"

    def _leaves(self) -> set[str]:
        inner = {parent for parents in self._record.parents.values() for parent in parents}
        return set(self._record.parents) - inner


def _seen(task: str, line: Line) -> str:
    verb = "seen" if task in line.seen else "not seen"
    return f"{verb} by {'what collects' if line.final else line.task}"


def _readable(result: Any) -> bool:
    return _has_nonce(result) and isinstance(result.get("leaves"), dict)


def _has_nonce(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("nonce"), str)
