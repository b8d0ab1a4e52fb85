"""The kinds of operations, each a plan and what is done about it."""

from recovery.engine import Applier, Resources
from recovery.operations.kinds.abort import Abort
from recovery.operations.kinds.base import Kind, Planned, totals_of
from recovery.operations.kinds.check import Check, RepairAll
from recovery.operations.kinds.collect import Collect
from recovery.operations.kinds.restart import Restart
from recovery.operations.kinds.restart_from import RestartFrom
from recovery.operations.kinds.set_idle_timeout import SetIdleTimeout
from recovery.records import OperationKind

__all__ = ["Kind", "Planned", "kind_of", "totals_of"]

_KINDS: dict[OperationKind, type[Kind]] = {
    OperationKind.CHECK: Check,
    OperationKind.REPAIR: RepairAll,
    OperationKind.RESTART: Restart,
    OperationKind.RESTART_FROM: RestartFrom,
    OperationKind.ABORT: Abort,
    OperationKind.COLLECT: Collect,
    OperationKind.SET_IDLE_TIMEOUT: SetIdleTimeout,
}
KINDS = tuple(_KINDS)


def kind_of(kind: OperationKind, resources: Resources, applier: Applier) -> Kind:
    """What carries out operations of this kind."""
    return _KINDS[kind](resources, applier)
