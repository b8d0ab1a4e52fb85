"""What every kind of operation is: how the plan of a page of processes is made, and how it is carried out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from recovery.engine import Outbox, Resources
from recovery.engine.isolation import in_a_line, is_of_servers
from recovery.errors import InputError
from recovery.records import Operation, OperationKind, OperationResult, Process, ResultState, Totals
from recovery.records.operation_parts import result_id
from recovery.store.views.ranges import Range


@dataclass(frozen=True, slots=True)
class Planned:
    """The plan of a page: a result for each process to which something is to be done, and what was read."""

    results: list[OperationResult]
    totals: Totals


Options = Mapping[str, Any]
"""{name: what was given} of the options of an order; None for what was not."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option that only some kinds of operation take. Its name is its field in OperationRequest and in Operation."""

    name: str
    flag: str
    """As the command line has it."""
    others: str
    """What is told to an order of another kind, whose name stands for `{kind}`."""
    read: Callable[[Resources, Options], Any]
    """Return the value for the operation, of an order that gives it. Raises InputError."""
    shown: Callable[[Any], str] = lambda value: f" {value}"
    """The value as an error shows it, with a space before."""
    missing: str | None = None
    """What is told to an order without it; None: it may be left out."""

    def checked(self, resources: Resources, options: Options, kind: type[Kind]) -> Any:
        """Return the value for an operation of this kind; None without one. Raises InputError."""
        if options[self.name] is None:
            if self in kind.options and self.missing is not None:
                raise InputError(self.missing)
            return None
        if self not in kind.options:
            raise InputError(f"{self.flag}{self.shown(options[self.name])}: {self.others.format(kind=kind.name)}")
        return self.read(resources, options)


class Kind(ABC):
    """One kind of operation: its options, what it may run beside, its plan, and how that is carried out."""

    name: ClassVar[OperationKind]
    options: ClassVar[tuple[Option, ...]] = ()
    """Options that it takes and not all kinds do."""
    is_exclusive: ClassVar[bool] = True
    """Whether no other exclusive operation may be applied to one of its processes meanwhile, because it ends or begins
    something for them."""
    may_match_none: ClassVar[bool] = False
    """Whether it may be ordered though no process matches the selection yet."""

    page: int = 100
    """Processes to which it is done together, if the rate allows."""
    step: int = 100
    """Of these, between two looks at the lease: some seconds' work."""
    undone: str = "nothing came of it"
    """What is told of a process that is as it was planned, and to which it could not be done."""
    none: str = "nothing is to be done to any of them"
    """Why a plan is empty though processes match the selection."""
    begins: bool = True
    """Whether it is written down of each process that it is begun with. Without need where the records tell what is
    still to be done."""
    surveys: bool = False
    """Whether it can plan a range as a whole, where no rate is set."""

    def __init__(self, resources: Resources, outbox: Outbox) -> None:
        self.resources, self.outbox = resources, outbox

    @abstractmethod
    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        """What is to be done to these processes. Changes nothing."""

    def survey(
        self, operation: Operation, part: Range, chosen: Sequence[str] | None, hold: Callable[[], bool]
    ) -> Iterator[Planned]:
        """The plan of a whole range, of all processes or of the chosen ones in it, a part at a time. `hold` renews the
        lease, and tells whether to go on: what was planned till then counts for nothing if not."""
        raise NotImplementedError

    def besides(self, part: Range) -> Sequence[str]:  # noqa: ARG002
        """Ids of a range, beside those of its processes, of which a plan has to be made as well where all of it is gone
        through by pages."""
        return ()

    def apply(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        """Do what stands in these results; each as it ended. Together, and where that fails one by one: one that fails
        does not hold up the others."""
        try:
            return self.together(operation, results)
        except Exception as error:
            if is_of_servers(error):
                raise
            if len(results) == 1:
                return [self.failed(operation, results[0], in_a_line(error))]
        # Of what was begun together some may be done.
        return [one for result in results for one in self.apply(operation, [result.evolve(begun=True)])]

    def together(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        """Do it to those that are as they were planned; each as it ended."""
        ids = [result.process for result in results]
        seen = self.resources.store.processes.briefs(ids)
        as_planned = {
            result.process: seen[result.process]
            for result in results
            if result.process in seen and described(seen[result.process]) == result.before
        }
        told = self.do(operation, list(as_planned.values())) if as_planned else {}
        now = {**seen, **self.resources.store.processes.briefs([*as_planned])}
        return [
            self._ended(operation, result, now.get(result.process), result.process in as_planned, told)
            for result in results
        ]

    def do(self, operation: Operation, seen: Sequence[Process]) -> Mapping[str, str]:
        """Do it to these processes, each as far as it is still as it was seen; what is to be told of some beside."""
        raise NotImplementedError

    def _ended(
        self,
        operation: Operation,
        result: OperationResult,
        process: Process | None,
        ours: bool,
        told: Mapping[str, str],
    ) -> OperationResult:
        if process is None:
            return ended(result, ResultState.CHANGED, None, "the process is gone")
        if (ours or result.begun) and self.is_done(operation, result, process):
            done = ended(result, ResultState.DONE, process)
            return done.evolve(after=f"{done.after}, {told[process.id]}") if process.id in told else done
        if described(process) != result.before:
            changed = f"planned as {result.before}, now {described(process)}"
            return ended(result, ResultState.CHANGED, process, changed)
        return ended(result, ResultState.ERROR, process, self.undone)

    def failed(self, operation: Operation, result: OperationResult, error: str) -> OperationResult:
        """How one ended that failed: somebody else may have done it just then, or changed it."""
        now = self.resources.store.processes.briefs([result.process]).get(result.process)
        told = self._ended(operation, result, now, True, {})
        return told if told.state is not ResultState.ERROR else ended(result, ResultState.ERROR, now, error)

    def is_done(self, operation: Operation, result: OperationResult, process: Process) -> bool:  # noqa: ARG002
        """Whether it was done before somebody was cut off, as far as the process shows."""
        return False

    def told(self, operation: Operation) -> str:
        """Who does it and why, as it is shown with a process."""
        return f"operation {operation.id}: {operation.why}"


def described(process: Process) -> str:
    """A process's state as a plan remembers it: `STATE/EPOCH/REOPENED`. Where it differs, somebody was there first."""
    return f"{process.state.value}/{process.epoch}/{process.times_reopened}"


def found(operation: Operation, process: Process, plan: str, at: datetime) -> OperationResult:
    """A result: this is to be done to the process."""
    return OperationResult(
        id=result_id(operation.id, process.id),
        operation=operation.id,
        process=process.id,
        type=process.type,
        before=described(process),
        plan=plan,
        at=at,
    )


def ended(
    result: OperationResult, state: ResultState, process: Process | None, error: str | None = None
) -> OperationResult:
    """A result as it ended."""
    return result.evolve(state=state, after=described(process) if process is not None else None, error=error)


def plan_each(
    resources: Resources,
    operation: Operation,
    process_ids: Sequence[str],
    judge: Callable[[Process], str | None],
) -> Planned:
    """The plan of a kind that looks at Process records alone: `judge` says in words what is to be done, or None. Read
    as a majority has them, since the plan is shown to people."""
    store = resources.store
    at = store.now()
    processes = store.processes.committed_briefs(process_ids)
    results = [
        found(operation, process, plan, at) for process in processes.values() if (plan := judge(process)) is not None
    ]
    return Planned(results, totals_of(results, processes=len(processes)))


def totals_of(results: Iterable[OperationResult], processes: int = 0, decisions: int = 0) -> Totals:
    """What a page adds up to."""
    totals = Totals(processes=processes, decisions=decisions)
    for result in results:
        state = {
            ResultState.DONE: "done",
            ResultState.NOTHING: "nothing",
            ResultState.CHANGED: "changed",
            ResultState.ERROR: "errors",
        }.get(result.state)
        one = Totals(found=1, rules=result.counts, repaired=result.repaired, types={result.type: 1})
        totals += one.evolve(**{state: 1}) if state else one
    return totals
