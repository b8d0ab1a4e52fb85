"""What somebody who may has ordered to be done to a process beyond its normal life: the Order record.

A mark on the process (`removing`, `redo`, `markerDue`) has it found, and is no more than a hint: clients may write
processes. What is marked is done only if the order that the mark names is there, for that process, in that epoch.
Clients can write no orders, and can't read them either.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from recovery.records.ids import record_id, split_record_id
from recovery.records.process import Process
from recovery.records.record import Record


class OrderKind(StrEnum):
    """What is ordered."""

    REMOVE = "remove"
    REDO = "redo"
    MARK = "mark"
    """Its marker is to be written: it broke for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(Record):
    """`id` is `P/key`, with a key that nobody can guess and that the mark names. The epoch is the process's, while that
    is marked."""

    id: str
    kind: OrderKind
    epoch: int
    tasks: tuple[str, ...] = ()
    """From which it is to be done again."""
    at: datetime

    @property
    def process_id(self) -> str:
        return split_record_id(self.id)[0]


class Mark(NamedTuple):
    """What stands in a process: that this is to be done to it, by the order of this key."""

    process: str
    kind: OrderKind
    key: str
    epoch: Any
    """As it stands there. One that another program has spoilt keeps nothing that was ordered from its end."""

    @property
    def order(self) -> str:
        """The id of the order that it names."""
        return record_id(self.process, self.key)

    def is_by(self, order: Order) -> bool:
        """Whether an order is for this process, as it is marked."""
        is_spoilt = not isinstance(self.epoch, (int, float))
        return (order.id, order.kind) == (self.order, self.kind) and (is_spoilt or self.epoch == order.epoch)


def mark_of(process: Process) -> Mark | None:
    """How a process is marked; None: it is not, or by nobody who names an order."""
    if process.order is None or not process.is_marked:
        return None
    if process.marker_due and not process.removing:
        kind = OrderKind.MARK
    else:
        kind = OrderKind.REMOVE if process.removing else OrderKind.REDO
    return Mark(process.id, kind, process.order, process.epoch)
