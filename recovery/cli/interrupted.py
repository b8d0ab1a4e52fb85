"""How interrupted tasks are shown: in groups, and one by one with their stacks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from recovery.cli.output import Labelled, fits, line, moment
from recovery.wording import count

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.engine import Resources
    from recovery.records import Decision, ErrorInfo, Interruption
    from recovery.store import Group, Selection
    from recovery.store.operators.interruption_records import Interruptions

PAGE = 1000
"""Tasks that are read at once."""


def print_groups(out: Console, groups: Sequence[Group]) -> None:
    """Print a table of at least one group. In a pipe each group has one line."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    names = ("tasks", "type", "actor", "kind", "fingerprint", "first", "last", "example")
    for name in names if out.is_terminal else (*names, "message"):
        table.add_column(name, justify="right" if name == "tasks" else "left")
    for group in groups:
        cells = (f"{group.count:,}", group.type, group.actor, group.kind, group.fingerprint, *_times(group))
        process, message = line((group.example.partition("/")[0], "dim")), line(_first_line(group.message))
        table.add_row(*cells, *([Text("\n").join([message, process])] if out.is_terminal else [process, message]))
    if fits(table, out.width):
        out.print(table)
    else:
        for block in _blocks(groups):
            out.print(block)


def tasks_of(resources: Resources, selection: Selection) -> Iterator[dict[str, Any]]:
    """Yield all selected tasks as JSON has them, in the order of their processes' starts."""
    from recovery.engine.operators.restart import pages

    for page in pages(resources, selection, PAGE):
        custom_ids = resources.store.process_names.of({one.process_id for one in page})
        for one in page:
            yield {
                "id": one.id,
                "process": one.process_id,
                "task": one.task_id,
                "custom_id": custom_ids.get(one.process_id),
                "type": one.type,
                "actor": one.actor,
                "kind": one.kind,
                "fingerprint": one.fingerprint,
                "at": one.at,
            }


def print_tasks(out: Console, tasks: Iterable[dict[str, Any]]) -> None:
    """Print a line for each task, with its id first. It is no table, because there may be a million tasks. In a narrow
    terminal the rest of a line goes on below, indented."""
    for one in tasks:
        custom_id = f"  {one['custom_id']}" if one["custom_id"] else ""
        rest = f"{one['type']}, {one['actor']}: {one['kind']}, {moment(one['at'])}, fingerprint {one['fingerprint']}"
        if len(one["id"]) + len(custom_id) + len(rest) + 2 <= out.width:
            out.print(f"{one['id']}{custom_id}  {rest}")
        else:
            out.print(f"{one['id']}{custom_id}", Labelled([("", rest)], 4), sep="\n")


def _blocks(groups: Sequence[Group]) -> Iterator[Text]:
    """Yield a block of lines for each group, for a terminal that is too narrow for a table."""
    for group in groups:
        first, last = _times(group)
        of = f"{count(group.count, 'task')} of {group.type}, {group.actor}: "
        yield line((of, "bold"), f"{group.kind}: {_first_line(group.message)}")
        yield line(f"    fingerprint  {group.fingerprint}")
        yield line(f"    example      {group.example.partition('/')[0]}")
        yield line(f"    {first} to {last}")


def print_none(out: Console, interruptions: Interruptions, selection: Selection) -> None:
    """Say that nothing is selected, and what may have been meant."""
    from recovery.engine.lookup import hint
    from recovery.store import Selection

    message = "no task is interrupted"
    groups = interruptions.groups(Selection()) if selection.filter() else []
    for what, wanted in selection.filter().items():
        known = sorted({getattr(group, what) for group in groups})
        if known and wanted not in known:
            message += f"; no {what} {wanted!r} is listed, {hint(wanted, known, '')}"
    if groups and message == "no task is interrupted":
        message = "no interrupted task matches all of these options"
    out.print(message)


def print_if_none(out: Console, interruptions: Interruptions, selection: Selection) -> None:
    """If nothing is selected, say so, and what may have been meant."""
    if not interruptions.count(selection):
        print_none(out, interruptions, selection)


def print_plan(out: Console, interruptions: Interruptions, selection: Selection, what: str) -> None:
    """Print a table of the groups that are selected, and what would be done to them."""
    groups = interruptions.groups(selection)
    if not groups:
        print_none(out, interruptions, selection)
        return
    print_groups(out, groups)
    out.print(f"would {what}; add --yes to do it")


def without_rule(message: str) -> str:
    """Return a process's error without the rule at its start, because the kind of error says the same."""
    from recovery.rules import Rule

    start, _, rest = message.partition(": ")
    return rest if start in Rule.__members__ and rest else message


def _first_line(message: str) -> str:
    return without_rule(message).splitlines()[0][:80] if message else ""


def _times(group: Group) -> tuple[str, str]:
    return moment(group.first), moment(group.last)


def lines(one: Interruption, decision: Decision | None) -> Iterator[Text]:
    """Yield all that is known of an interrupted task. Its stack is last."""

    yield line(one.id, style="bold")
    at = f"{moment(one.at)} UTC"
    life = f", restarted {count(one.restarts, 'time')}" if one.restarts else ""
    what = f"{one.actor} of {one.type}, attempt {one.attempt}"
    if not one.attempt and _error(decision) is None:
        what = f"{one.type}, the process as a whole"
    yield line(f"{what}{life}, {at}, fingerprint {one.fingerprint}")
    yield line(f"{one.kind}: {without_rule(one.message)}", style="red")
    if (stack := _stack(decision)) is not None:
        yield Text(stack)


def as_dict(one: Interruption, decision: Decision | None) -> dict[str, Any]:
    """Return all that is known of an interrupted task, as JSON has it."""
    import dataclasses

    return {**dataclasses.asdict(one), "stack": _stack(decision)}


def _stack(decision: Decision | None) -> str | None:
    error = _error(decision)
    return error.stack if error is not None else None


def _error(decision: Decision | None) -> ErrorInfo | None:
    return decision.outcome.error if decision is not None and decision.outcome is not None else None
