"""A schedule as it is shown: as JSON has it, and for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.text import Text

from recovery.cli.operation_texts import orders_dict
from recovery.cli.operation_view import priorities_text, purpose_rows
from recovery.cli.output import Labelled, print_rows, utc
from recovery.records.schedule import DEFAULTS, Plan, Schedule, ScheduledOrders, SlotResult
from recovery.schedule import damage_of, is_call
from recovery.schedule.judge import due_at
from recovery.search import stored_in_words
from recovery.wording import show_duration

if TYPE_CHECKING:
    from rich.console import Console

_DURATIONS = ("jitter", "retry_across")
_OFF = {"retry_across": 0.0, "retry_across_count": 0}
"""{setting: what it is where it is off}."""


def as_dict(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule as JSON has it. Times are in UTC."""
    slot = schedule.next_slot if schedule.state == "active" else None
    failing = schedule.failing
    return {
        "type": schedule.type,
        "orders": None if schedule.orders is None else _orders(schedule.orders, slot),
        "declared_by": "code" if schedule.code else "operator",
        "state": schedule.state,
        "why": why(schedule),
        "settings": settings(schedule),
        "next_slot": slot,
        "due": None if slot is None else due_at(schedule, slot),
        "waiting": list(schedule.waiting),
        "last_slot": schedule.last_slot,
        "last_process": schedule.last_process,
        "last_operation": schedule.last_operation,
        "failing": None
        if failing is None
        else {"code": failing.code, "since": failing.since, "instances": failing.count, "process": failing.process},
        "recent": [result_dict(one) for one in schedule.recent],
        "changes": [{"what": one.what, "by": one.by, "reason": one.reason, "at": one.at} for one in schedule.changes],
    }


def selection_in_words(orders: ScheduledOrders, slot: datetime | None) -> str:
    """Return which processes the operation of a slot selects, with dates: without a next slot, as of now."""
    return stored_in_words(orders.selection, slot or datetime.now(UTC))


def _orders(orders: ScheduledOrders, slot: datetime | None) -> dict[str, Any]:
    words = selection_in_words(orders, slot)
    return {**orders_dict(orders), "selection_in_words": words, "why": orders.purpose, "saved": orders.saved}


def result_dict(result: SlotResult) -> dict[str, Any]:
    """Return what became of a slot, as JSON has it."""
    return {
        "slot": result.slot,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "process": result.process,
        "operation": result.operation,
        "triggered": bool(result.triggered),
    }


def why(schedule: Schedule) -> str | None:
    """Return why a schedule starts nothing, or None if it does."""
    if (disabled := schedule.disabled) is not None:
        marker = f"; see the marker {disabled.marker}" if disabled.marker else ""
        return f"process {disabled.process} {disabled.reason}{marker}"
    if schedule.paused is not None:
        return f"{schedule.paused.reason} ({schedule.paused.by})"
    if (damage := damage_of(schedule)) is not None:
        return str(damage)
    if not schedule.ended:
        return None
    return "past its ends_at" if schedule.plan.schedule else "the code does not say any more when it is due"


def settings(schedule: Schedule) -> dict[str, dict[str, Any]]:
    """Return the value and the origin of each setting, by name. A setting of an operator also has the value of the
    code, if there is code."""
    over, code, plan = schedule.overrides or Plan(), schedule.code or Plan(), schedule.plan
    found: dict[str, dict[str, Any]] = {}
    for one in fields(Plan):
        name, value = one.name, _plain(getattr(plan, one.name))
        if getattr(over, name) is not None:
            found[name] = {"value": value, "from": "operator"}
            if schedule.code is not None:
                found[name]["code"] = _plain(getattr(code.over(DEFAULTS), name))
        else:
            found[name] = {"value": value, "from": "default" if getattr(code, name) is None else "code"}
    found["arguments"]["value"] = _call(plan.arguments)
    if "code" in found["arguments"]:
        found["arguments"]["code"] = _call(code.over(DEFAULTS).arguments)
    return found


def _call(text: str | None) -> Any:
    """Return `[positional, named]` arguments; as their text, if they are damaged."""
    return json.loads(text or "[[],{}]") if is_call(text) else text


def shown(name: str, value: Any) -> str:
    """Return a setting's value as people see it."""
    if value is None or (name in _OFF and value == _OFF[name]):
        return "off" if name in _OFF else "none"
    if name == "arguments":
        from recovery.cli.task_texts import arguments

        if isinstance(value, str):
            return value
        return arguments(json.dumps(value)) or "none"
    if name in _DURATIONS:
        return show_duration(value)
    return f"{value:%Y-%m-%dT%H:%M:%SZ}" if isinstance(value, datetime) else str(value)


def overridden(found: Mapping[str, dict[str, Any]]) -> str:
    """Return what operators set, on one line."""
    return ", ".join(f"{name}={shown(name, one['value'])}" for name, one in found.items() if one["from"] == "operator")


def print_all(out: Console, found: Mapping[str, Schedule], damaged: Sequence[str]) -> None:
    """Print a row for each schedule, and a line for each that cannot be read."""

    for told in damaged:
        out.print(told, style="red")
    if not found and not damaged:
        out.print("none: declare one in code (docs/schedules.md), or `recovery schedule add`")
    if not found:
        return
    rows = []
    for name, one in found.items():
        word = one.state
        when = one.plan.schedule or "–"
        zone = one.plan.time_zone or ""
        slot = utc(one.next_slot) if word == "active" and one.next_slot else "–"
        if word == "active" and (damage := damage_of(one)) is not None:
            word, slot = "damaged", "–"
            out.print(str(damage), style="red")
        by_operator = "all" if one.code is None else overridden(settings(one))
        rows.append((name, one.type, when, zone, Text(word, style=_STYLES[word]), slot, last(one), by_operator))
    print_rows(out, ("schedule", "type", "when", "time zone", "state", "next", "last", "set by operators"), rows)


def print_one(out: Console, name: str, schedule: Schedule) -> None:
    """Print a schedule with its settings, its last slots and what operators did."""

    word, reason = schedule.state, why(schedule)
    does = "starts" if schedule.orders is None else "orders"
    out.print(Text.assemble((name, "bold"), f" {does} {schedule.type}: ", (word, _STYLES[word])))
    out.print(Labelled(_lines(schedule, reason), 14))
    found = settings(schedule)
    out.print("")
    print_rows(
        out,
        ("setting", "value", "from"),
        [(key, shown(key, one["value"]), _origin(key, one)) for key, one in found.items()],
    )
    if schedule.recent:
        out.print("")
        slots = [(utc(one.slot), _outcome(one), _came_to(one)) for one in schedule.recent]
        what = "process" if schedule.orders is None else "operation"
        print_rows(out, ("slot", "outcome", f"{what}, or why not"), slots)
    if schedule.changes:
        out.print("")
        words = [(utc(one.at), one.what, one.by, one.reason) for one in schedule.changes]
        print_rows(out, ("at", "operators", "who", "why"), words)


def _lines(schedule: Schedule, reason: str | None) -> Iterator[tuple[str, str]]:
    if reason:
        yield "why", reason
    if (orders := schedule.orders) is not None:
        yield from _order_lines(schedule, orders)
    if schedule.next_slot is not None and schedule.state == "active":
        due = due_at(schedule, schedule.next_slot)
        late = "" if due == schedule.next_slot else f", started at {due:%H:%M:%S} by its jitter"
        yield "next", f"{utc(schedule.next_slot)}{late}"
    if schedule.waiting:
        yield "waiting", ", ".join(utc(slot) for slot in schedule.waiting)
    if schedule.last_slot is not None:
        yield "last", last(schedule)
    if (failing := schedule.failing) is not None:
        yield "failing", f"with the code {failing.code} since {utc(failing.since)}, {failing.count} in a row"


def _order_lines(schedule: Schedule, orders: ScheduledOrders) -> Iterator[tuple[str, str]]:
    """Yield what is ordered at each slot."""
    slot = schedule.next_slot if schedule.state == "active" else None
    when = f"at {utc(slot)}" if slot is not None else "if it were now"
    yield from purpose_rows(orders, f"{when}: {selection_in_words(orders, slot)}")
    if orders.spark is not None:
        yield "runs in", "Spark" if orders.spark else "recovery workers"
    if orders.parquet:
        yield "parquet", orders.parquet
    if orders.rate:
        yield "rate", f"{orders.rate:g} processes a second in all"
    if orders.priorities:
        yield "first", priorities_text(orders)
    if orders.saved:
        yield "saved as", f"@{orders.saved}, as it was when the schedule was added"
    yield "reason", orders.purpose


def last(schedule: Schedule) -> str:
    """Return the last process that was started, or operation that was ordered, and its slot."""
    if schedule.last_slot is None:
        return "–"
    what = f"process {schedule.last_process}" if schedule.orders is None else f"operation {schedule.last_operation}"
    return f"{utc(schedule.last_slot)}, {what}"


def _came_to(result: SlotResult) -> str:
    return result.process or (f"operation {result.operation}" if result.operation else result.reason or "")


def _outcome(result: SlotResult) -> str:
    return f"{result.outcome.value}, triggered" if result.triggered else result.outcome.value


def _origin(name: str, one: Mapping[str, Any]) -> str:
    if one["from"] != "operator":
        return str(one["from"])
    return f"set; the code says {shown(name, one['code'])}" if "code" in one else "set"


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, StrEnum) else value


_STYLES = {"active": "", "paused": "yellow", "disabled": "red", "ended": "dim", "damaged": "red"}
