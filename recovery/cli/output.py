"""What all commands print by: consoles, the one error message, tables, labelled lines, and JSON.

All that people read goes through `PlainConsole`: what somebody named is no markup, and no escape sequence. Programs
read JSON, which has escapes of its own: with `--json` a command prints one object, which names its version and the
command. docs/commands.md describes each.
"""

from __future__ import annotations

import io
import json as json_module
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.text import Text

from recovery.wording import printable, printable_lines

if TYPE_CHECKING:
    from rich.table import Table

Cell = str | Text

JSON_VERSION = 1
"""Of the shape of what `--json` prints. A key may be added within a version; one that goes, or means something else,
makes a new one."""

UNLIMITED = 100_000
"""Characters of a line that goes to a pipe or a file: what is copied or searched there is not wrapped."""

MAX_MESSAGE, MAX_WORD = 10_000, 300
"""Characters of an error, a hundred lines or so; and of what it repeats without a space, as an argument may be."""
_LONG = re.compile(rf"\S{{{MAX_WORD + 1},}}")

GAP = 2
"""Spaces between the columns of a table."""
MIN_TEXT = 20
"""Characters of a labelled line that its text has at least, however wide the label is."""

_WORD = re.compile(r"\s*(?:[^\s`]*`[^`\n]{1,200}`\S*|\S+)\s*")
"""What is not broken when a text is wrapped: a word, or a command in backticks, which people copy."""


class PlainConsole(Console):
    """A console on which a text is what it is: no markup, no emoji codes, no escape sequences of its own. Colours are
    those of our styles alone. A str, printed or in a cell, is one line; what has several is a Text."""

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None, width: int | None = None) -> None:
        super().__init__(stderr=stderr, file=file, width=width, markup=False, emoji=False, highlight=False)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print it: texts wrapped between words, and a word that is wider than the terminal is not cut."""
        wrapped = [
            Text("\n").join(wrap(self.render_str(one) if isinstance(one, str) else one, self.width))
            if isinstance(one, str | Text)
            else one
            for one in objects
        ]
        super().print(*wrapped, **{"overflow": "ignore", "crop": False, **options})

    def render_str(self, text: str, **options: Any) -> Text:
        """What rich makes of a str."""
        return super().render_str(printable(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """What rich makes of anything that is printed, with its text made printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable_lines(segment.text), segment.style)


def wrap(text: Text, width: int) -> list[Text]:
    """Return a text's lines, wrapped between words and outside of commands in backticks. One of rich's own ways cuts a
    long word, and the other wraps nothing."""
    lines: list[Text] = []
    for one in text.split(allow_blank=True):
        breaks, used = [], 0
        for word in _WORD.finditer(one.plain):
            size = cell_len(word[0].rstrip())
            if used and used + size > width:
                breaks.append(word.start())
                used = 0
            used += cell_len(word[0])
        parts = list(one.divide(breaks)) or [one]
        for part in parts:
            part.rstrip()
        lines += parts
    return lines or [text]


def line(*parts: str | tuple[str, str], style: str = "") -> Text:
    """Return one line of texts and (text, style). No part can begin another line."""
    shown = [printable(part) if isinstance(part, str) else (printable(part[0]), part[1]) for part in parts]
    return Text.assemble(*shown, style=style)


def console() -> Console:
    """Return the console for results. Its lines are as wide as the terminal, and unlimited without a terminal."""
    return _unlimited(PlainConsole())


def messages() -> Console:
    """Return the console for messages beside the results, with lines of the same width."""
    return _unlimited(PlainConsole(stderr=True))


def _unlimited(made: PlainConsole) -> Console:
    if not made.is_terminal:
        made.width = UNLIMITED
    return made


def fail(message: str, notes: Iterable[str] = ()) -> None:
    """Print an error. What is too long for anybody to read is cut: it may repeat an argument or a stack."""
    message = _LONG.sub(lambda found: f"{found[0][:MAX_WORD]}…", message[:MAX_MESSAGE])
    # What somebody else wrote may have lines, and none of them looks like an error of its own.
    message = message.replace("\n", "\n  ")
    text = Text.assemble(("error: ", "bold red"), (message, "red"), *(f"\n{note}" for note in notes))
    with suppress(OSError):  # who can't be told learns by the exit code
        messages().print(text)


def seconds_between(earlier: datetime | None, later: datetime) -> float | None:
    """Return the seconds from one time to another, at least 0. Return None if the first is missing."""
    return None if earlier is None else max(0.0, (later - earlier).total_seconds())


def print_json(command: str, found: Mapping[str, Any]) -> None:
    """Print what a command found. Times are ISO 8601 in UTC, ages and durations are seconds."""
    print(_dumped({"version": JSON_VERSION, "command": command, **found}))


def print_answer(command: str, found: Mapping[str, Any], text: str, *, json: bool) -> None:
    """Print what a command found or did: as JSON, or as a text for people."""
    if json:
        print_json(command, found)
    else:
        console().print(text)


def moment(at: datetime | None) -> str:
    """Return a time in UTC, as tables have it. A record that another program wrote may have none."""
    return f"{at:%Y-%m-%d %H:%M:%S}" if at else "?"


def utc(at: datetime | None) -> str:
    """Return the same with its time zone, as sentences have it."""
    return f"{moment(at)} UTC" if at else "?"


def stream_json(command: str, found: Mapping[str, Any], name: str, rows: Iterable[Any]) -> None:
    """Print what a command found, with `rows` under a name at its end.

    Each row is printed as it comes, because there may be millions. Output that is cut off is not JSON.
    """
    sys.stdout.write(f"{_dumped({'version': JSON_VERSION, 'command': command, **found})[:-1]}, {_dumped(name)}: [")
    for place, row in enumerate(rows):
        sys.stdout.write(f"{', ' if place else ''}{_dumped(row)}")
    sys.stdout.write("]}\n")


def _dumped(value: Any) -> str:
    return json_module.dumps(value, default=datetime.isoformat)


class Labelled:
    """Rows of a label and a text; what is wrapped goes on under the text. A label is padded to `width`."""

    def __init__(self, rows: Iterable[tuple[Cell, Cell]], width: int = 12) -> None:
        self._rows = [(_as_text(label), _as_text(text)) for label, text in rows]
        self._width = width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        room = max(MIN_TEXT, options.max_width - self._width)
        for label, text in self._rows:
            start = label.copy()
            start.append(" " * max(0, self._width - label.cell_len))
            # A word that is wider than the room is copied from here, and so not cut.
            for wrapped in wrap(text, room):
                whole = Text.assemble(start, wrapped, overflow="ignore", no_wrap=True)
                whole.rstrip()
                yield whole
                start = Text(" " * self._width)


def print_rows(
    out: Console,
    headers: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    right: Sequence[str] = (),
    none: str = "",
) -> None:
    """Print a table, if the terminal is wide enough for its words. Otherwise print a block of labelled lines for each
    row.

    Args:
        out: Where to print.
        headers: Names of the columns.
        rows: Cells of each row.
        right: Columns that are aligned to the right.
        none: What to print instead if there is no row.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for header in headers:
        table.add_column(header, justify="right" if header in right else "left")
    kept = [[_as_text(cell) for cell in row] for row in rows]
    if none and not kept:
        out.print(none)
        return
    for row in kept:
        table.add_row(*row)
    if fits(table, out.width):
        out.print(table)
        return
    width = max(map(len, headers)) + 4
    for first, *others in kept:
        out.print(Text.assemble(first, style="bold"))
        named = zip(headers[1:], others, strict=True)
        out.print(Labelled([(f"  {header}", cell) for header, cell in named if cell.plain], width))


def fits(table: Table, width: int) -> bool:
    """Return whether a terminal is wide enough for a table's words. If so, set the widths of its columns.

    The table is then wrapped between words only, because ids and names are copied from it. The first columns get the
    width that is left.
    """
    bare = PlainConsole(width=UNLIMITED, file=io.StringIO())
    measured = []
    for column in table.columns:
        cells = [Measurement.get(bare, bare.options, cell) for cell in (column.header, *column.cells)]
        widest = max(cell.maximum for cell in cells)
        measured.append((max(cell.minimum for cell in cells), widest))
    room = width - GAP * (len(measured) - 1) - sum(minimum for minimum, _ in measured)
    for column, (minimum, maximum) in zip(table.columns, measured, strict=True):
        more = max(0, min(room, maximum - minimum))
        column.width, room = minimum + more, room - more
    return room >= 0


def _as_text(cell: Cell) -> Text:
    return line(cell) if isinstance(cell, str) else cell
