"""Requests for operations, and their checks before anything is saved. The kinds' modules check options of single
kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.engine import Resources
from recovery.engine.lookup import hint
from recovery.engine.operators.saved_searches import read_search, unknown_types
from recovery.errors import InputError
from recovery.limits import MAX_COUNT
from recovery.operations.kinds import KINDS, OPTIONS, Kind
from recovery.records import OperationKind, Orders, ResultState, SavedOperation, given
from recovery.search import Query

MAX_SELECTION = 10_000
MAX_RATE = 1_000_000.0


@dataclass(frozen=True, slots=True)
class OperationRequest:
    """A request for an operation, as an operator gives it."""

    kind: str
    selection: str = ""
    everything: bool = False
    """Whether an empty selection is intended."""
    apply: bool = False
    """Whether the plan is applied at once, before anybody has seen it."""
    rate: float | None = None
    priorities: Mapping[str, int] = field(default_factory=dict)
    from_actor: str | None = None
    """For restart_from: the actor whose tasks are done again. None: from the beginning."""

    export: str | None = None
    """For collect: the folder to which processes are exported before they are removed."""
    export_format: str | None = None
    """For collect: a value of ExportFormat."""

    idle_timeout: float | None = None
    """For set_idle_timeout: the new idle timeout in seconds."""

    thorough: bool = False
    """For check and repair: whether records at rest are searched for damage, too."""
    spark: bool | None = None
    """True: run in Spark. False: do not run in Spark. None: decide by the number of processes."""
    here: bool = False
    """Whether the caller drives the operation in its own Spark, so that no worker is needed."""
    parquet: str | None = None
    """For check and repair in Spark: the folder to which results are written."""
    none_is_fine: bool = False
    """Whether the selection may match no process."""
    slot: str | None = None
    """The time of a schedule or sweep for which the operation is ordered. A second order for the same slot returns the
    first operation."""

    @classmethod
    def of(cls, saved: SavedOperation) -> OperationRequest:
        """Return the request of a saved operation."""
        return cls(**{**saved.what(), "thorough": bool(saved.thorough), "everything": not saved.selection})

    def checked(self, resources: Resources) -> Orders:
        """Return the checked orders of an operation that is started now. Raises InputError."""
        kind, query, orders = self._read(resources)
        if self.none_is_fine:
            _refuse_unknown_types(resources, query, self.selection)
        elif orders.selection and not resources.store.search.page(query, None, 1):
            _refuse_empty(resources, kind, query, self.selection)
        if self.apply and not orders.changes:
            raise InputError("a check changes nothing, so there is nothing to apply: leave --yes out, or use repair")
        if self.spark and not self.here and not resources.store.workers.serve_spark():
            raise InputError(
                "no live worker serves the queue spark: start one (`recovery worker --queues spark`), or leave "
                "--spark out, so that recovery workers run it"
            )
        return orders

    def checked_to_save(self, resources: Resources) -> Orders:
        """Return the checked orders of an operation that is saved for later.

        Conditions that matter only at the start are not checked, and names of saved searches stay in the selection.
        Raises InputError.
        """
        _, query, orders = self._read(resources)
        _refuse_unknown_types(resources, query, self.selection)
        return orders.evolve(selection=self.selection.strip())

    def _read(self, resources: Resources) -> tuple[type[Kind], Query, Orders]:
        kind = kind_named(self.kind)
        selection = given.text(self.selection, "selection", longest=MAX_SELECTION) if self.selection.strip() else ""
        if not selection and not self.everything:
            raise InputError(
                "no selection was given: select processes as in `recovery find` "
                "(`type:order state:broken`), or give --all for every process"
            )
        if selection and self.everything:
            raise InputError(f"--all and the selection {given.shown(selection)}: give one of them")
        query = read_search(resources, selection)
        orders = Orders(
            kind=kind.name,
            # The expanded text is kept, because saved searches may be changed while the operation runs.
            selection=query.text,
            spark=self.spark,
            rate=checked_rate(self.rate),
            priorities=self._checked_priorities(resources),
            **self._checked_options(resources, kind),
        )
        return kind, query, orders

    def _checked_options(self, resources: Resources, kind: type[Kind]) -> dict[str, Any]:
        """Return {field of the operation: value} of the options that only some kinds accept."""
        options = {option.name: getattr(self, option.name) for option in OPTIONS}
        options |= {"thorough": self.thorough or None, "spark": self.spark}
        return {option.name: option.checked(resources, options, kind) for option in OPTIONS}

    def _checked_priorities(self, resources: Resources) -> dict[str, int]:
        known = sorted(resources.store.process_types.all())
        for name in self.priorities:
            if name not in known:
                raise InputError(f"no process type is named {given.shown(name)}; {hint(name, known, 'none is known')}")
        return {name: checked_priority(name, value) for name, value in self.priorities.items()}


def _refuse_empty(resources: Resources, kind: type[Kind], query: Query, selection: str) -> None:
    """Raise InputError for a selection that matches no process.

    A kind may allow that: a collect may be ordered before any process is old enough. A selection with an unknown
    process type is always refused, unless no worker has reported any type yet.
    """
    unknown = unknown_types(resources, query)
    if kind.may_match_none and not (unknown and resources.store.process_types.stored()):
        return
    why = "; ".join([*unknown, "try it with `recovery find`"])
    raise InputError(f"no process matches {given.shown(selection)}; {why}")


def _refuse_unknown_types(resources: Resources, query: Query, selection: str) -> None:
    """Raise InputError for a selection with an unknown process type, because it would never match anything. Not checked
    if no worker has reported any type yet."""
    unknown = unknown_types(resources, query)
    if unknown and resources.store.process_types.stored():
        raise InputError(f"{given.shown(selection)}: {'; '.join(unknown)}")


def kind_named(name: str) -> type[Kind]:
    """Return the kind of this name. Raises InputError."""
    known = [str(kind) for kind in KINDS]
    wanted = name.replace("-", "_") if isinstance(name, str) else name
    if wanted not in known:
        raise InputError(f"no operation is called {given.shown(name)}; {hint(str(wanted), known, 'there are none')}")
    return KINDS[OperationKind(wanted)]


def checked_rate(rate: float | None) -> float | None:
    """Return a valid rate, or None. Raises InputError."""
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= MAX_RATE:
        raise InputError(
            f"rate {given.shown(rate)}: give processes a second, above 0 and up to {MAX_RATE:,.0f}; to stop "
            "the operation for a while, pause it"
        )
    return float(rate)


def checked_priority(name: str, priority: Any) -> int:
    """Return a valid priority for a process type. Raises InputError."""
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > MAX_COUNT:
        raise no_priority(name, priority)
    return priority


def no_priority(name: str, said: Any) -> InputError:
    """Return the error for an invalid priority."""
    wanted = f"a whole number from {-MAX_COUNT:,} to {MAX_COUNT:,}"
    return InputError(f"priority {name}={given.shown(said)}: give {wanted}; others have 0")


def rate_of(text: str) -> float | None:
    """Return the rate that an operator typed, or None for `unlimited`. Raises InputError."""
    if text == "unlimited":
        return None
    try:
        return checked_rate(float(text))
    except ValueError:
        raise InputError(f"rate {given.shown(text)}: give processes a second, or unlimited") from None


def states_of(names: Sequence[str]) -> list[ResultState]:
    """Return the states of results with these names. Raises InputError."""
    known = [state.value for state in ResultState]
    for name in names:
        if name not in known:
            raise InputError(f"--state {given.shown(name)}: {hint(name, known, 'there are none')}")
    return [ResultState(name) for name in names]
