"""What was lost, and what was accepted twice: told from the ledger, and from what is stored at the end.

None of our own counters is asked, and no judgement of ours, since a bug in them is what is looked for. What is known
is only what executions wrote before they returned, what their successors got to see, and which values stood in the
decisions, as anybody reads them, now and then and when all is over.

A value is *used* when an execution sees it as its parent's, when the collecting execution sees it as a leaf's,
when it stands in the process's stored result, or when it was read in its task's decision. Every execution makes a
nonce of its own, and a value is given on only once it is accepted. Hence:

- Two results of a task were accepted if two of its nonces are used, or if another one is stored than was used. Its
  executions may be many, since killed ones are run again and a late one may even write its line; only one of them may
  ever be used, and that one stays. (Two accepted results had no effect if nobody read the first one, and all
  successors saw the second.) A task that was made twice, as two tasks of the process, shows by two ids
  in its lines.
- An accepted result was lost if what is used has no line (nobody made it) or is not stored any more, if a task of a
  finished process has no line or nothing stored, if what is stored has no line, if an execution did not see exactly
  its parents, or if the stored result is not what a collecting execution that saw all leaves wrote.

The result is read when the process ends and again at the very end: a second end that replaced the first one's
result is two used nonces.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.demo.ledger import Line
from recovery.wfformat.workload import Run

COLLECT = ""
"""Stands for the collecting task where workflow tasks have their name."""

Place = tuple[str, str]
"""(process, workflow task)."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A process that was started: its workflow's tasks with their parents, and its result as it was read."""

    process: str
    parents: Mapping[str, Sequence[str]]
    results: Sequence[Any] = ()
    """Each reading of the stored result; empty if the process has not finished."""
    stored: Mapping[str, Any] | None = None
    """{task id: the value that stands in its decision}, of the finished ones, at the end; None: not read."""
    accepted: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """{task id: each value that stood there when somebody looked}."""

    @classmethod
    def of(cls, run: Run) -> RunRecord:
        """Return what the audit needs to know of a process."""
        parents = {task.id: task.parents for task in run.workflow.tasks}
        return cls(run.id, parents, tuple(run.results), run.stored, run.accepted)


@dataclass(frozen=True, slots=True)
class Audit:
    """What the ledger tells."""

    executions: int
    """Lines of workflow tasks; more than there are tasks where an attempt was cut off after its line."""
    lost: dict[Place, str] = field(default_factory=dict)
    """{place: what is missing}."""
    accepted_twice: dict[Place, str] = field(default_factory=dict)


def audit(lines: Iterable[Line], processes: Iterable[RunRecord]) -> Audit:
    """Judge a run."""
    by_process: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        by_process[line.process].append(line)
    executions = sum(not line.final for written in by_process.values() for line in written)
    result = Audit(executions)
    for ran in processes:
        _Case(ran, by_process.get(ran.process, [])).judge(result)
    return result


class _Case:
    """One process and its lines."""

    def __init__(self, ran: RunRecord, lines: Sequence[Line]) -> None:
        self._ran = ran
        self._lines = lines
        self._made: dict[str, set[str]] = defaultdict(set)
        self._ids: dict[str, set[str]] = defaultdict(set)
        self._used: dict[str, set[str]] = defaultdict(set)
        for line in lines:
            task = COLLECT if line.final else line.task
            self._made[task].add(line.nonce)
            self._ids[task].add(line.id)
            self._use(line.seen)
        for result in ran.results:
            if _readable(result):
                self._used[COLLECT].add(result["nonce"])
                self._use(result["leaves"])
        for task, ids in self._ids.items():
            read = [value for key in ids for value in ran.accepted.get(key, ())]
            self._used[task].update(value["nonce"] for value in read if _has_nonce(value))
        self._stored = self._stored_nonces()

    def _use(self, seen: Mapping[str, str]) -> None:
        for task, nonce in seen.items():
            self._used[task].add(nonce)

    def _stored_nonces(self) -> dict[str, set[str]]:
        """{task: nonces that are stored for it}: one, or none, or of a task that was made twice two."""
        found: dict[str, set[str]] = {}
        for task, ids in self._ids.items():
            values = [self._ran.stored[key] for key in ids if key in self._ran.stored] if self._ran.stored else []
            found[task] = {str(value.get("nonce") if isinstance(value, dict) else value) for value in values}
        return found

    def judge(self, result: Audit) -> None:
        for task, why in self._twice():
            result.accepted_twice.setdefault((self._ran.process, task), why)
        for task, why in self._lost():
            result.lost.setdefault((self._ran.process, task), why)

    def _twice(self) -> Iterable[tuple[str, str]]:
        for task, nonces in self._used.items():
            if len(nonces) > 1:
                yield task, f"results {', '.join(sorted(nonces))} were both used"
        for task, ids in self._ids.items():
            if len(ids) > 1:
                yield task, f"is there as {', '.join(sorted(ids))}"
        for task, nonces in self._stored.items():
            used = self._used[task]
            if used and (others := (nonces & self._made[task]) - used):
                yield task, f"result {', '.join(sorted(used))} was used, and {', '.join(sorted(others))} is stored"

    def _lost(self) -> Iterable[tuple[str, str]]:
        for task, nonces in self._used.items():
            if unknown := nonces - self._made[task]:
                yield task, f"result {', '.join(sorted(unknown))} was used, and no execution made it"
        for line in self._lines:
            expected = self._leaves() if line.final else set(self._ran.parents.get(line.task, ()))
            for task in expected ^ set(line.seen):
                yield task, f"{'' if task in expected else 'wrongly '}{_seen(task, line)}"
        if self._ran.stored is not None:
            yield from self._not_stored()
        if self._ran.results:
            yield from self._missing()

    def _not_stored(self) -> Iterable[tuple[str, str]]:
        for task, nonces in self._stored.items():
            if self._used[task] and not nonces:
                yield task, f"result {', '.join(sorted(self._used[task]))} was used, and none is stored"
            elif self._ran.results and not nonces:
                yield task, "the process has finished, and no result of it is stored"
            if unknown := nonces - self._made[task]:
                yield task, f"result {', '.join(sorted(unknown))} is stored, and no execution made it"

    def _missing(self) -> Iterable[tuple[str, str]]:
        for task in self._ran.parents:
            if task not in self._made:
                yield task, "the process has finished, and no execution of it was written down"
        finals = {line.nonce: line for line in self._lines if line.final}
        for result in self._ran.results:
            line = finals.get(result["nonce"]) if _readable(result) else None
            if line is None:
                yield COLLECT, "the stored result is of no execution that was written down"
            elif dict(line.seen) != result["leaves"]:
                yield COLLECT, "the stored result is not what its execution wrote down"

    def _leaves(self) -> set[str]:
        inner = {parent for parents in self._ran.parents.values() for parent in parents}
        return set(self._ran.parents) - inner


def _seen(task: str, line: Line) -> str:
    verb = "seen" if task in line.seen else "not seen"
    return f"{verb} by {'what collects' if line.final else line.task}"


def _readable(result: Any) -> bool:
    return _has_nonce(result) and isinstance(result.get("leaves"), dict)


def _has_nonce(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("nonce"), str)
