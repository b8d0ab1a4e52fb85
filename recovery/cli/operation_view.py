"""An operation as people and programs see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from recovery.durations import show_age, show_duration
from recovery.plurals import count
from recovery.search import stored_in_words

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.engine import Resources
    from recovery.operations import Progress
    from recovery.records import Operation, OperationResult, Totals

SAMPLE = 10
"""Processes that are shown of a plan; `operation report` has all."""
MANY = 5
STYLES = {"running": "green", "planning": "green", "paused": "yellow", "planned": "cyan", "cancelled": "dim"}


def as_dict(found: Progress) -> dict[str, Any]:
    """As JSON has it. Times are in UTC, durations in seconds."""
    operation = found.operation
    return {
        "number": operation.id,
        "kind": operation.kind.value,
        "selection": operation.selection,
        "selection_in_words": selection_in_words(operation),
        "from_actor": operation.from_actor,
        "export": operation.export,
        "export_format": operation.export_format.value if operation.export_format is not None else None,
        "idle_timeout": operation.idle_timeout,
        "thorough": bool(operation.thorough),
        "spark": bool(operation.driven),
        "parquet": operation.parquet,
        "state": operation.state.value,
        "phase": operation.phase.value,
        "who": operation.who,
        "why": operation.why,
        "origin": operation.origin,
        "rate": operation.rate,
        "priorities": operation.priorities,
        "asked_at": operation.asked_at,
        "ended_at": operation.ended_at,
        "refusal": operation.refusal,
        "planned": _totals(operation.planned),
        "applied": _totals(operation.applied),
        "sums": [
            {"type": one.type, "rule": one.rule, "actor": one.actor, "count": one.count} for one in operation.sums
        ],
        "progress": {
            "share": round(found.share, 4),
            "expected": found.expected,
            "totals": _totals(found.totals),
            "seconds": round(found.seconds, 3),
            "speed": round(found.speed, 3) if found.speed is not None else None,
            "seconds_left": round(found.seconds_left, 1) if found.seconds_left is not None else None,
            "ranges": found.ranges,
            "ranges_done": found.ranges_done,
            "workers": list(found.workers),
            "errors": list(found.errors),
        },
    }


def selection_in_words(operation: Operation) -> str:
    """Return which processes an operation selects, with dates: its relative times count from its order."""
    return stored_in_words(operation.selection, operation.asked_at or datetime.now(UTC))


def _totals(totals: Totals | None) -> dict[str, Any] | None:
    if totals is None:
        return None
    names = ("processes", "decisions", "found", "done", "nothing", "changed", "errors", "rules", "repaired", "types")
    return {name: getattr(totals, name) for name in names}


def sample(resources: Resources, operation: Operation) -> list[dict[str, Any]]:
    """The first processes of an operation's plan."""
    page = next(resources.store.operation_results.pages(operation.id, size=SAMPLE), [])
    return [result_dict(one) for one in page]


def result_dict(result: OperationResult) -> dict[str, Any]:
    """What was found on, and done to, one process."""
    return {
        "process": result.process,
        "type": result.type,
        "state": result.state.value,
        "plan": result.plan,
        "rules": result.counts,
        "repaired": result.repaired,
        "before": result.before,
        "after": result.after,
        "error": result.error,
        "at": result.at,
        "ended_at": result.ended_at,
        "findings": [
            {"rule": one.rule, "record": one.record, "actor": one.actor, "evidence": one.evidence}
            for one in result.findings
        ],
    }


def print_all(out: Console, found: Sequence[Progress], damaged: Sequence[str]) -> None:
    """A row for each, and a line for each that can't be read."""
    from rich.text import Text

    from recovery.cli.tables import print_rows

    for told in damaged:
        out.print(told, style="red", markup=False, highlight=False)
    if not found:
        if not damaged:
            out.print("none")
        return
    rows = [
        (
            str(one.operation.id),
            one.operation.kind.value,
            one.operation.selection or "all",
            Text(one.operation.state.value, style=STYLES.get(one.operation.state.value, "")),
            f"{one.share:.0%}",
            f"{one.totals.found:,}",
            f"{one.totals.done:,}",
            one.operation.who,
        )
        for one in found
    ]
    headers = ("number", "kind", "selection", "state", "phase done", "found", "done", "by")
    print_rows(out, headers, rows, right=("number", "phase done", "found", "done"))


def print_one(out: Console, resources: Resources, found: Progress) -> None:
    """All of it, and a sample of its processes."""
    from rich.text import Text

    from recovery.cli.tables import Labelled, print_rows

    operation = found.operation
    head = f"operation {operation.id}"
    style = STYLES.get(operation.state.value, "bold")
    out.print(Text.assemble((head, "bold"), "  ", operation.kind.value, "  ", (operation.state.value, style)))
    out.print(Labelled([(Text(f"  {label}", style="bold"), text) for label, text in _rows(found)], 14))
    rows = sample(resources, operation)
    if rows:
        out.print()
        shown = [(one["process"], one["type"], one["state"], _what(one)) for one in rows]
        print_rows(out, ("process", "type", "state", "what"), shown)
        if found.totals.found > len(rows):
            more = found.totals.found - len(rows)
            out.print(f"and {more:,} more: `recovery operation report {operation.id}`", style="dim")
    for advice in _advice(found):
        out.print(advice, style="dim")


def _what(result: Mapping[str, Any]) -> str:
    rules = ", ".join(result["rules"])
    said = f"{rules}: {result['plan']}" if rules else result["plan"]
    return f"{said}; {result['error']}" if result["error"] else said


def _rows(found: Progress) -> Iterator[tuple[str, str]]:
    yield from _purpose_rows(found.operation)
    yield from _order_rows(found.operation)
    yield from _progress_rows(found)


def _purpose_rows(operation: Operation) -> Iterator[tuple[str, str]]:
    """Yield which processes the operation covers and the settings of its kind."""
    yield "selection", operation.selection or "all processes"
    if operation.kind.value == "restart_from":
        yield "from", f"the tasks of {operation.from_actor}" if operation.from_actor else "the beginning"
    if operation.kind.value == "collect":
        yield "removes", f"{selection_in_words(operation)}, if they are over"
        written = f", as {operation.export_format.value}" if operation.export_format is not None else ""
        yield "export", f"{operation.export}{written}" if operation.export else "none: what is removed is gone"
    if operation.idle_timeout is not None:
        yield "idle timeout", show_duration(operation.idle_timeout)


def _order_rows(operation: Operation) -> Iterator[tuple[str, str]]:
    """Yield who ordered the operation and how it is to run."""
    yield "asked", f"{_moment(operation.asked_at)} UTC by {operation.who}: {operation.why}"
    if operation.driven:
        yield "runs in", "Spark"
    if operation.parquet:
        yield "parquet", f"{operation.parquet}{'' if operation.parquet_written else ', not yet written'}"
    if operation.rate:
        yield "rate", f"{operation.rate:g} processes a second in all"
    if operation.priorities:
        yield "first", ", ".join(f"{name} {value}" for name, value in operation.priorities.items())
    if operation.refusal:
        yield "refused", operation.refusal


def _progress_rows(found: Progress) -> Iterator[tuple[str, str]]:
    """Yield what the operation has planned and done so far, and what holds it up."""
    operation = found.operation
    if operation.planned is not None:
        yield "plan", _summary(operation.planned)
    if operation.applied is not None:
        yield "came to", _done(operation.applied)
    if operation.planned is None or (operation.phase.value == "apply" and operation.applied is None):
        yield "progress", progress_line(found)
    for error in found.errors:
        yield "held up", error
    if operation.ended_at is not None:
        yield "ended", f"{_moment(operation.ended_at)} UTC"


def progress_line(found: Progress) -> str:
    """How far it is, in a line."""
    parts = [f"{found.share:.0%}", f"{found.ranges_done} of {count(found.ranges, 'range')}"]
    parts.append(_done(found.totals) if found.operation.phase.value == "apply" else _summary(found.totals))
    if found.speed:
        parts.append(f"{found.speed:,.0f} a second")
    if found.seconds_left is not None:
        parts.append(f"about {show_age(found.seconds_left)} left")
    return ", ".join(parts)


def _summary(totals: Totals) -> str:
    said = f"{count(totals.processes, 'process')} looked at, {totals.found:,} to act on or report"
    if totals.rules:
        said += f" ({_most(totals.rules)})"
    elif totals.types:
        said += f" ({_most(totals.types)})"
    return said


def _done(totals: Totals) -> str:
    names = {"done": totals.done, "nothing to do": totals.nothing, "changed since": totals.changed}
    names |= {"failed": totals.errors}
    said = ", ".join(f"{number:,} {name}" for name, number in names.items() if number) or "nothing done yet"
    return f"{said} ({_most(totals.repaired)})" if totals.repaired else said


def _most(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda pair: -pair[1])
    told = ", ".join(f"{name} {number:,}" for name, number in ordered[:MANY])
    return f"{told}, and {count(len(ordered) - MANY, 'other')}" if len(ordered) > MANY else told


def _advice(found: Progress) -> Iterator[str]:
    operation = found.operation
    state = operation.state.value
    if state == "planned" and found.totals.found:
        yield f"nothing has been changed: `recovery operation apply {operation.id}` runs this plan"
    elif state == "planned":
        yield "nothing is to be done"
    elif state in ("planning", "running"):
        yield f"`recovery operation watch {operation.id}` follows it"
    elif state == "paused":
        yield f"`recovery operation resume {operation.id}` lets it go on"


def _moment(at: Any) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else "?"
