"""The base of all kinds of operations: how a page of processes is planned, and how its plan is applied."""

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
    """The plan of one page: a result for each process that needs a change, and how much was read."""

    results: list[OperationResult]
    totals: Totals


Options = Mapping[str, Any]
"""Values of a request by option name. None if the option was not given."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option that only some kinds accept. Its name is its field in OperationRequest and in Operation."""

    name: str
    flag: str
    """The option on the command line."""
    others: str
    """Error for an order of a kind that does not accept the option. `{kind}` is replaced by the kind's name."""
    read: Callable[[Resources, Options], Any]
    """Return the operation's value for an order that gives the option. Raises InputError."""
    shown: Callable[[Any], str] = lambda value: f" {value}"
    """Return the value as errors show it, with a leading space."""
    missing: str | None = None
    """Error for an order without the option. None: the option may be left out."""

    def checked(self, resources: Resources, options: Options, kind: type[Kind]) -> Any:
        """Return the option's value for an operation of this kind, or None if it was not given. Raises InputError."""
        if options[self.name] is None:
            if self in kind.options and self.missing is not None:
                raise InputError(self.missing)
            return None
        if self not in kind.options:
            raise InputError(f"{self.flag}{self.shown(options[self.name])}: {self.others.format(kind=kind.name)}")
        return self.read(resources, options)


class Kind(ABC):
    """A kind of operation: its options, which operations it may run beside, and how it is planned and applied."""

    name: ClassVar[OperationKind]
    options: ClassVar[tuple[Option, ...]] = ()
    """Options that this kind accepts and some other kinds do not."""
    is_exclusive: ClassVar[bool] = True
    """Whether this kind excludes other exclusive operations from its processes while it is applied. True for kinds that
    end or begin something for a process."""
    may_match_none: ClassVar[bool] = False
    """Whether an operation may be ordered although no process matches its selection yet."""

    page: int = 100
    """Processes per page, if the rate allows that many."""
    step: int = 100
    """Processes of a page that are applied between two renewals of the lease. They should take at most a few
    seconds."""
    undone: str = "it could not be changed"
    """The error of a process that is unchanged since it was planned, and that could not be changed."""
    none: str = "nothing is to be done to any of them"
    """Why a plan is empty although processes match the selection."""
    begins: bool = True
    """Whether each result is marked as begun before it is applied. Not needed if the process's records show what is
    still to be done."""
    surveys: bool = False
    """Whether a whole range can be planned in one scan if no rate is set."""

    def __init__(self, resources: Resources, outbox: Outbox) -> None:
        self.resources, self.outbox = resources, outbox

    @abstractmethod
    def plan(self, operation: Operation, process_ids: Sequence[str]) -> Planned:
        """Return the plan for these processes. Changes nothing."""

    def survey(
        self, operation: Operation, part: Range, chosen: Sequence[str] | None, hold: Callable[[], bool]
    ) -> Iterator[Planned]:
        """Yield the plan of a whole range, a part at a time.

        Args:
            operation: The operation to plan.
            part: The range of process ids.
            chosen: Ids of the selected processes in the range. None: all processes.
            hold: Renews the lease. Returns whether to continue; if not, everything planned so far is void.
        """
        raise NotImplementedError

    def besides(self, part: Range) -> Sequence[str]:  # noqa: ARG002
        """Return ids in a range that have no Process record and must be planned too.

        Called when all processes of a range are planned page by page.
        """
        return ()

    def apply(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        """Apply these results, and return each in its final state.

        The results are applied as a batch. If the batch fails, each result is applied alone, so that a failure does not
        block the other results. Raises if a server is unavailable.
        """
        try:
            return self.together(operation, results)
        except Exception as error:
            if is_of_servers(error):
                raise
            if len(results) == 1:
                return [self.failed(operation, results[0], in_a_line(error))]
        # A failed batch may have changed some of its processes. `begun` tells `is_done` to look for that.
        return [
            ended_result for result in results for ended_result in self.apply(operation, [result.evolve(begun=True)])
        ]

    def together(self, operation: Operation, results: Sequence[OperationResult]) -> list[OperationResult]:
        """Apply the results whose processes are unchanged since the plan, and return each in its final state."""
        ids = [result.process for result in results]
        seen = self.resources.store.processes.briefs(ids)
        as_planned = {
            result.process: seen[result.process]
            for result in results
            if result.process in seen and described(seen[result.process]) == result.before
        }
        notes = self.do(operation, list(as_planned.values())) if as_planned else {}
        now = {**seen, **self.resources.store.processes.briefs([*as_planned])}
        return [
            self._ended(operation, result, now.get(result.process), result.process in as_planned, notes)
            for result in results
        ]

    def do(self, operation: Operation, seen: Sequence[Process]) -> Mapping[str, str]:
        """Change these processes, each only if it is still as in `seen`.

        Returns:
            {process id: note to append to the result}, for processes that have a note.
        """
        raise NotImplementedError

    def _ended(
        self,
        operation: Operation,
        result: OperationResult,
        process: Process | None,
        is_as_planned: bool,
        notes: Mapping[str, str],
    ) -> OperationResult:
        if process is None:
            return ended(result, ResultState.CHANGED, None, "the process is gone")
        if (is_as_planned or result.begun) and self.is_done(operation, result, process):
            final = ended(result, ResultState.DONE, process)
            return final.evolve(after=f"{final.after}, {notes[process.id]}") if process.id in notes else final
        if described(process) != result.before:
            changed = f"planned as {result.before}, now {described(process)}"
            return ended(result, ResultState.CHANGED, process, changed)
        return ended(result, ResultState.ERROR, process, self.undone)

    def failed(self, operation: Operation, result: OperationResult, error: str) -> OperationResult:
        """Return the final state of a result whose change failed. Another worker may have made the change, or a
        different one."""
        process = self.resources.store.processes.briefs([result.process]).get(result.process)
        final = self._ended(operation, result, process, True, {})
        return final if final.state is not ResultState.ERROR else ended(result, ResultState.ERROR, process, error)

    def is_done(self, operation: Operation, result: OperationResult, process: Process) -> bool:  # noqa: ARG002
        """Return whether the process shows that an earlier attempt has already made this change."""
        return False

    def told(self, operation: Operation) -> str:
        """Return who makes the change and why, as it is shown with a process."""
        return f"operation {operation.id}: {operation.why}"


def described(process: Process) -> str:
    """Return a process's state as a plan records it: `STATE/EPOCH/REOPENED`. A different text means that the process
    has changed since."""
    return f"{process.state.value}/{process.epoch}/{process.times_reopened}"


def found(operation: Operation, process: Process, plan: str, at: datetime) -> OperationResult:
    """Return a planned change to a process."""
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
    """Return a result in its final state."""
    return result.evolve(state=state, after=described(process) if process is not None else None, error=error)


def plan_each(
    resources: Resources,
    operation: Operation,
    process_ids: Sequence[str],
    judge: Callable[[Process], str | None],
) -> Planned:
    """Return the plan of a kind that needs only Process records.

    `judge` describes the change to a process in words, or returns None for no change. Records are read with majority
    read concern, because people see the plan.
    """
    store = resources.store
    at = store.now()
    processes = store.processes.committed_briefs(process_ids)
    results = [
        found(operation, process, plan, at) for process in processes.values() if (plan := judge(process)) is not None
    ]
    return Planned(results, totals_of(results, processes=len(processes)))


def totals_of(results: Iterable[OperationResult], processes: int = 0, decisions: int = 0) -> Totals:
    """Return the totals of a page."""
    totals = Totals(processes=processes, decisions=decisions)
    for result in results:
        state = {
            ResultState.DONE: "done",
            ResultState.NOTHING: "nothing",
            ResultState.CHANGED: "changed",
            ResultState.ERROR: "errors",
        }.get(result.state)
        total = Totals(found=1, rules=result.counts, repaired=result.repaired, types={result.type: 1})
        totals += total.evolve(**{state: 1}) if state else total
    return totals
