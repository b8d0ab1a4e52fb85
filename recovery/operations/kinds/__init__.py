"""The kinds of operations.

Each kind has a module that declares its options, which operations it may run beside, how its plan is made, and how the
plan is applied.
"""

from recovery.engine import Outbox, Resources
from recovery.operations.kinds.aborting import Abort
from recovery.operations.kinds.base import Kind, Planned, totals_of
from recovery.operations.kinds.checking import CheckAll
from recovery.operations.kinds.collect import Collect
from recovery.operations.kinds.repairing import RepairAll
from recovery.operations.kinds.restarting import Restart, RestartFrom
from recovery.operations.kinds.set_idle_timeout import SetIdleTimeout
from recovery.records import Operation, OperationKind
from recovery.wording import count

__all__ = ["EXCLUSIVE", "KINDS", "OPTIONS", "Kind", "Planned", "kind_of", "totals_of", "why_none"]

KINDS: dict[OperationKind, type[Kind]] = {
    kind.name: kind for kind in (CheckAll, RepairAll, Restart, RestartFrom, Abort, Collect, SetIdleTimeout)
}
EXCLUSIVE = tuple(name for name, kind in KINDS.items() if kind.is_exclusive)
OPTIONS = tuple(dict.fromkeys(option for kind in KINDS.values() for option in kind.options))
"""Options that only some kinds accept."""


def why_none(operation: Operation) -> str:
    """Return why the complete plan of an operation is empty."""
    matching = operation.planned.processes if operation.planned is not None else 0
    if not matching:
        return "no process matches the selection" if operation.selection else "there is no process"
    if operation.selection:
        verb = "match" if matching > 1 else "matches"
    else:
        verb = "were looked at" if matching > 1 else "was looked at"
    return f"{count(matching, 'process')} {verb}, and {KINDS[operation.kind].none}"


def kind_of(kind: OperationKind, resources: Resources, outbox: Outbox) -> Kind:
    """Return the object that plans and applies operations of this kind."""
    return KINDS[kind](resources, outbox)
