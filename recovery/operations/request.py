"""What an operator asks for, checked before anything is saved. What only some kinds take, their modules check."""

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
    """An operation as it is asked for."""

    kind: str
    selection: str = ""
    everything: bool = False
    """Whether an empty selection is meant."""
    apply: bool = False
    """Whether its plan is applied at once, without anybody having seen it."""
    rate: float | None = None
    priorities: Mapping[str, int] = field(default_factory=dict)
    from_actor: str | None = None
    """Of a restart_from: from whose tasks; None: from the beginning."""

    export: str | None = None
    """Of a collect: the folder where what is removed is written before."""
    export_format: str | None = None
    """As what: a value of ExportFormat."""

    idle_timeout: float | None = None
    """Of a set_idle_timeout: the new one, in seconds."""

    thorough: bool = False
    """Of a check or repair: whether damage is looked for in what is at rest, too."""
    spark: bool | None = None
    """Whether it is to run in Spark, or by no means; None: by its size."""
    here: bool = False
    """Whether whoever asks drives it in a Spark of his own, so that no worker has to."""
    parquet: str | None = None
    """Of a check or repair in Spark: the folder where its results are written."""
    none_is_fine: bool = False
    """Whether a selection may match nothing."""
    slot: str | None = None
    """Of one that is ordered by the clock: whoever orders one for the same slot gets the one that is there."""

    @classmethod
    def of(cls, saved: SavedOperation) -> OperationRequest:
        """Return what a saved operation asks for."""
        return cls(**{**saved.what(), "thorough": bool(saved.thorough), "everything": not saved.selection})

    def checked(self, resources: Resources) -> Orders:
        """Return what an operation is to do that is ordered now. Raises InputError."""
        kind, query, orders = self._read(resources)
        if self.none_is_fine:
            _refuse_unknown_types(resources, query, self.selection)
        elif orders.selection and not resources.store.search.page(query, None, 1):
            _refuse_empty(resources, kind, query, self.selection)
        if self.apply and not orders.changes:
            raise InputError("a check changes nothing, so there is nothing to apply: leave --yes out, or use repair")
        if self.spark and not self.here and not resources.store.workers.serve_spark():
            raise InputError(
                "no worker that lives serves the queue spark: start one (`recovery worker --queues spark`), or leave "
                "--spark out and let recovery workers do it"
            )
        return orders

    def checked_to_save(self, resources: Resources) -> Orders:
        """Return what an operation is to do that is saved for later: what has to be there only when it is started is
        not asked for, and names of saved searches stay in its selection. Raises InputError."""
        _, query, orders = self._read(resources)
        _refuse_unknown_types(resources, query, self.selection)
        return orders.evolve(selection=self.selection.strip())

    def _read(self, resources: Resources) -> tuple[type[Kind], Query, Orders]:
        kind = kind_named(self.kind)
        selection = given.text(self.selection, "selection", longest=MAX_SELECTION) if self.selection.strip() else ""
        if not selection and not self.everything:
            raise InputError(
                "nothing is selected, so it would be every process: say which, as `recovery find` does "
                "(`type:order state:broken`), or give --all if all are meant"
            )
        if selection and self.everything:
            raise InputError(f"--all and the selection {given.shown(selection)}: give one of them")
        query = read_search(resources, selection)
        orders = Orders(
            kind=kind.name,
            # What was saved may be changed while it runs: it keeps the text that it had.
            selection=query.text,
            spark=self.spark,
            rate=checked_rate(self.rate),
            priorities=self._checked_priorities(resources),
            **self._checked_options(resources, kind),
        )
        return kind, query, orders

    def _checked_options(self, resources: Resources, kind: type[Kind]) -> dict[str, Any]:
        """{field of the operation: value} of the options that not all kinds take."""
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
    """Raise InputError for a selection that no process matches. A kind may allow that: a collection is tried when
    nothing is old enough to be removed yet. A selection of an unknown process type is refused all the same, unless no
    worker has reported any type yet."""
    unknown = unknown_types(resources, query)
    if kind.may_match_none and not (unknown and resources.store.process_types.stored()):
        return
    why = "; ".join([*unknown, "try it with `recovery find`"])
    raise InputError(f"no process matches {given.shown(selection)}; {why}")


def _refuse_unknown_types(resources: Resources, query: Query, selection: str) -> None:
    """Raise InputError for a selection of an unknown process type, which would match nothing whenever it is used;
    unless no worker has reported any type yet."""
    unknown = unknown_types(resources, query)
    if unknown and resources.store.process_types.stored():
        raise InputError(f"{given.shown(selection)}: {'; '.join(unknown)}")


def kind_named(name: str) -> type[Kind]:
    """The kind of this name. Raises InputError."""
    known = [str(kind) for kind in KINDS]
    wanted = name.replace("-", "_") if isinstance(name, str) else name
    if wanted not in known:
        raise InputError(f"no operation is called {given.shown(name)}; {hint(str(wanted), known, 'there are none')}")
    return KINDS[OperationKind(wanted)]


def checked_rate(rate: float | None) -> float | None:
    """A rate that can be. Raises InputError."""
    if rate is None:
        return None
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= MAX_RATE:
        raise InputError(
            f"rate {given.shown(rate)}: give processes a second, above 0 and up to {MAX_RATE:,.0f}; to stop it for a "
            "while, pause it"
        )
    return float(rate)


def checked_priority(name: str, priority: Any) -> int:
    """A priority that can be, of a process type. Raises InputError."""
    if isinstance(priority, bool) or not isinstance(priority, int) or abs(priority) > MAX_COUNT:
        raise no_priority(name, priority)
    return priority


def no_priority(name: str, said: Any) -> InputError:
    """The error for what is none."""
    wanted = f"a whole number from {-MAX_COUNT:,} to {MAX_COUNT:,}"
    return InputError(f"priority {name}={given.shown(said)}: give {wanted}; others have 0")


def rate_of(text: str) -> float | None:
    """A rate as an operator types it; None for `unlimited`. Raises InputError."""
    if text == "unlimited":
        return None
    try:
        return checked_rate(float(text))
    except ValueError:
        raise InputError(f"rate {given.shown(text)}: give processes a second, or unlimited") from None


def states_of(names: Sequence[str]) -> list[ResultState]:
    """States of results by their names. Raises InputError."""
    known = [state.value for state in ResultState]
    for name in names:
        if name not in known:
            raise InputError(f"--state {given.shown(name)}: {hint(name, known, 'there are none')}")
    return [ResultState(name) for name in names]
