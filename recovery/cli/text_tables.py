"""How results are laid out: labelled lines and tables, wrapped between words where there is a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from recovery.cli.output import UNLIMITED, PlainConsole, line, wrap

Cell = str | Text

GAP = 2
"""Spaces between columns."""
MIN_TEXT = 20
"""Characters of a line that its text has at least, however wide the label is."""


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
    whole: Sequence[str] = (),
) -> None:
    """Print a table, if the terminal is wide enough for its words. Otherwise print a block of labelled lines for each
    row.

    Args:
        out: Where to print.
        headers: Names of the columns.
        rows: Cells of each row.
        right: Columns that are aligned to the right.
        whole: Columns whose cells are not wrapped.
    """
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0))
    for header in headers:
        table.add_column(header, justify="right" if header in right else "left", no_wrap=header in whole)
    kept = [[_as_text(cell) for cell in row] for row in rows]
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
        measured.append((widest if column.no_wrap else max(cell.minimum for cell in cells), widest))
    room = width - GAP * (len(measured) - 1) - sum(minimum for minimum, _ in measured)
    for column, (minimum, maximum) in zip(table.columns, measured, strict=True):
        more = max(0, min(room, maximum - minimum))
        column.width, room = minimum + more, room - more
    return room >= 0


def _as_text(cell: Cell) -> Text:
    return line(cell) if isinstance(cell, str) else cell
