"""How interrupted tasks are shown: in groups, and one by one with their stacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from recovery.records import Decision, ErrorInfo, Interruption
    from recovery.store import Group, Selection
    from recovery.store.operations.interruptions import Interruptions


def print_groups(out: Console, groups: Sequence[Group]) -> None:
    """A table of groups, a line for each; there must be some."""
    from rich.measure import Measurement
    from rich.table import Table
    from rich.text import Text

    from recovery.cli.output import UNLIMITED, line, whole_words

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("tasks", "type", "actor", "kind", "fingerprint", "first", "last", "example"):
        table.add_column(name, justify="right" if name == "tasks" else "left")
    for group in groups:
        example = Text("\n").join([line(_first_line(group.message)), line((group.example.partition("/")[0], "dim"))])
        cells = (f"{group.count:,}", group.type, group.actor, group.kind, group.fingerprint, *_times(group))
        table.add_row(*cells, example)
    if Measurement.get(out, out.options.update_width(UNLIMITED), whole_words(table)).minimum <= out.width:
        out.print(table)
    else:
        for block in _blocks(groups):
            out.print(block, soft_wrap=True)


def _blocks(groups: Sequence[Group]) -> Iterator[Text]:
    """The same for a terminal in which a table would be wrapped beyond reading."""
    from recovery.cli.output import line

    for group in groups:
        first, last = _times(group)
        of = f"{count(group.count, 'task')} of {group.type}, {group.actor}: "
        yield line((of, "bold"), f"{group.kind}: {_first_line(group.message)}")
        yield line(f"    fingerprint  {group.fingerprint}")
        yield line(f"    example      {group.example.partition('/')[0]}")
        yield line(f"    {first} to {last}")


def print_none(out: Console, interruptions: Interruptions, selection: Selection) -> None:
    """Say that nothing is selected, and what may have been meant."""
    from recovery.engine.naming import hint
    from recovery.store import Selection

    told = "nothing is interrupted"
    groups = interruptions.groups(Selection()) if selection.filter() else []
    for what, wanted in selection.filter().items():
        known = sorted({getattr(group, what) for group in groups})
        if known and wanted not in known:
            told += f"; no {what} {wanted!r} is listed, {hint(wanted, known, '')}"
    if groups and told == "nothing is interrupted":
        told += " that is all of this at once"
    out.print(told, soft_wrap=True)


def without_rule(message: str) -> str:
    """A process's error without the rule that found it, which the record begins with: the kind of error says it."""
    from recovery.rules import Rule

    start, _, rest = message.partition(": ")
    return rest if start in Rule.__members__ and rest else message


def _first_line(message: str) -> str:
    return without_rule(message).splitlines()[0][:80] if message else ""


def _times(group: Group) -> tuple[str, str]:
    first, last = (f"{at:%Y-%m-%d %H:%M:%S}" if at else "?" for at in (group.first, group.last))
    return first, last


def lines(one: Interruption, decision: Decision | None) -> Iterator[Text]:
    """All that is known of one, its stack last."""
    from rich.text import Text

    from recovery.cli.output import line

    yield line(one.id, style="bold")
    at = f"{one.at:%Y-%m-%d %H:%M:%S} UTC" if one.at else "?"
    life = f", restarted {count(one.restarts, 'time')}" if one.restarts else ""
    what = f"{one.actor} of {one.type}, attempt {one.attempt}"
    if not one.attempt and _error(decision) is None:
        what = f"{one.type}, the process as a whole"
    yield line(f"{what}{life}, {at}, fingerprint {one.fingerprint}")
    yield line(f"{one.kind}: {without_rule(one.message)}", style="red")
    if (stack := _stack(decision)) is not None:
        yield Text(stack)


def as_dict(one: Interruption, decision: Decision | None) -> dict[str, Any]:
    """The same as JSON has it."""
    import dataclasses

    return {**dataclasses.asdict(one), "stack": _stack(decision)}


def _stack(decision: Decision | None) -> str | None:
    error = _error(decision)
    return error.stack if error is not None else None


def _error(decision: Decision | None) -> ErrorInfo | None:
    return decision.outcome.error if decision is not None and decision.outcome is not None else None


def count(number: int, what: str) -> str:
    """1 task, 2 tasks, 3 processes."""
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what}{'es' if what.endswith('s') else 's'}"
