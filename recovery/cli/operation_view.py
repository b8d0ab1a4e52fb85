"""An operation as people see it: all of it, followed or not, and many in a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from recovery.cli.operation_texts import (
    advice,
    as_dict,
    done_text,
    follow,
    plan_text,
    progress_line,
    sample,
    selection_in_words,
)
from recovery.cli.output import Labelled, console, moment, print_json, print_rows
from recovery.wording import show_duration

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.engine import Resources
    from recovery.operations import Progress
    from recovery.records import Operation, Orders

STYLES = {"running": "green", "planning": "green", "paused": "yellow", "planned": "cyan", "cancelled": "dim"}


def print_all(out: Console, found: Sequence[Progress], damaged: Sequence[str]) -> None:
    """Print a row for each operation, and a line for each that cannot be read."""

    for told in damaged:
        out.print(told, style="red")
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
    """Print all of an operation, and a sample of its processes."""

    operation = found.operation
    head = f"operation {operation.id}"
    style = STYLES.get(operation.state.value, "bold")
    out.print(Text.assemble((head, "bold"), "  ", operation.kind.value, "  ", (operation.state.value, style)))
    out.print(Labelled([(Text(f"  {label}", style="bold"), text) for label, text in _rows(found)], 16))
    rows = sample(resources, operation)
    if rows:
        out.print()
        shown = [(one["process"], one["type"], one["state"], _what(one)) for one in rows]
        print_rows(out, ("process", "type", "state", "what"), shown)
        if found.totals.found > len(rows):
            more = found.totals.found - len(rows)
            out.print(f"and {more:,} more: `recovery operation report {operation.id}`", style="dim")
    for text in advice(found):
        out.print(text, style="dim")


def _what(result: Mapping[str, Any]) -> str:
    rules = ", ".join(result["rules"])
    said = f"{rules}: {result['plan']}" if rules else result["plan"]
    return f"{said}; {result['error']}" if result["error"] else said


def _rows(found: Progress) -> Iterator[tuple[str, str]]:
    yield from purpose_rows(found.operation, selection_in_words(found.operation))
    yield from _order_rows(found.operation)
    yield from _progress_rows(found)


def purpose_rows(orders: Orders, words: str) -> Iterator[tuple[str, str]]:
    """Yield which processes an operation covers and the settings of its kind; `words` is its selection with dates."""
    yield "selection", orders.selection or "all processes"
    if orders.kind.value == "restart_from":
        yield "from", f"the tasks of {orders.from_actor}" if orders.from_actor else "the beginning"
    if orders.kind.value == "collect":
        yield "removes", f"{words}, if they are over"
        written = f", as {orders.export_format.value}" if orders.export_format is not None else ""
        yield "export", f"{orders.export}{written}" if orders.export else "none: what is removed is gone"
    if orders.idle_timeout is not None:
        yield "idle timeout", show_duration(orders.idle_timeout)
    if orders.thorough:
        yield "thorough", "damage is looked for in what is at rest, too"


def _order_rows(operation: Operation) -> Iterator[tuple[str, str]]:
    """Yield who ordered the operation and how it is to run."""
    yield "asked", f"{moment(operation.asked_at)} UTC by {operation.who}: {operation.why}"
    if operation.driven:
        yield "runs in", "Spark"
    if operation.parquet:
        yield "parquet", f"{operation.parquet}{'' if operation.parquet_written else ', not yet written'}"
    if operation.rate:
        yield (
            "rate",
            f"{operation.rate:g} processes a second in all{'' if operation.is_paced else ', once it is applied'}",
        )
    if operation.priorities:
        yield "first", priorities_text(operation)
    if operation.refusal:
        yield "refused", operation.refusal


def priorities_text(orders: Orders) -> str:
    """Return the process types with a priority."""
    return ", ".join(f"{name} {value}" for name, value in orders.priorities.items())


def _progress_rows(found: Progress) -> Iterator[tuple[str, str]]:
    """Yield what the operation has planned and done so far, and what holds it up."""
    operation = found.operation
    if operation.planned is not None:
        yield "plan", plan_text(operation.planned)
    if operation.applied is not None:
        yield "came to", done_text(operation.applied, "nothing done")
    if operation.planned is None or (operation.phase.value == "apply" and operation.applied is None):
        yield "progress", progress_line(found)
    for error in found.errors:
        yield "held up", error
    if operation.ended_at is not None:
        yield "ended", f"{moment(operation.ended_at)} UTC"


def print_whole(resources: Resources, command: str, operation: Operation, *, json: bool, watch: bool = False) -> None:
    """Print all of an operation and a sample of its processes; with `watch`, follow it first."""
    print_followed(
        resources, command, operation, lambda found: print_one(console(), resources, found), json=json, watch=watch
    )


def print_followed(
    resources: Resources,
    command: str,
    operation: Operation,
    show: Callable[[Progress], None],
    *,
    json: bool,
    watch: bool,
) -> None:
    """Print an operation by `show`, or as JSON with a sample of its processes; with `watch`, follow it first."""
    from recovery.operations import progress

    if watch:
        operation = follow(resources, operation.id, quiet=json)
    found = progress(resources, operation)
    if json:
        print_json(f"operation {command}", {**as_dict(found), "sample": sample(resources, operation)})
    else:
        show(found)
