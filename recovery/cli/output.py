"""What all commands share: settings with the options given, consoles, the one error message, ages."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from recovery.errors import ServerUnavailable
from recovery.settings import Settings, load

if TYPE_CHECKING:
    from recovery.engine import Resources

AppOption = Annotated[
    str | None,
    typer.Option(
        "--app", "-A", help="Your Recovery object, package.module:name; default: RECOVERY_APP.", metavar="APP"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]

UNLIMITED = 100_000
"""Characters of a line that goes to a pipe or a file: what is copied or searched there is not wrapped."""

_LOCAL = re.compile(r"(?:mongodb|redis)://(?:127\.0\.0\.1|localhost):(\d+)(?:/.*)?")

ANSWER_WITHIN = 3.0
"""Seconds that a server has to answer a command; one that is only slow answers in one."""


def paragraphs(text: str) -> str:
    """A command's help as Typer wants it: no line breaks but between paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


def console() -> Console:
    """Where results go. Lines are as wide as a terminal, or as long as they are where there is none."""
    made = Console()
    if not made.is_terminal:
        made.width = UNLIMITED
    return made


def messages() -> Console:
    """Where what is said beside the results goes."""
    return Console(stderr=True)


def whole_words(table: Table, *folded: str) -> Table:
    """The same table, which in a narrow terminal is wrapped between words only: ids and names are copied from it.

    `folded` are the headers of columns that hold nothing but prose. To be printed with `crop=False`: where even the
    words don't fit the terminal wraps the line.
    """
    bare = Console(width=UNLIMITED, file=io.StringIO())
    for column in table.columns:
        if column.header in folded:
            column.overflow = "fold"
        else:
            cells = [column.header, *column.cells] if table.show_header else column.cells
            column.min_width = max((Measurement.get(bare, bare.options, cell).minimum for cell in cells), default=1)
    return table


def fail(message: str, notes: Iterable[str] = ()) -> None:
    """Print an error."""
    text = Text.assemble(("error: ", "bold red"), (message, "red"), *(f"\n{note}" for note in notes))
    # Not wrapped: an address or a path in it is copied from here.
    messages().print(text, soft_wrap=True)


def connect(settings: Settings | None = None) -> Resources:
    """Connections to servers that were found to answer. Raises ServerUnavailable."""
    from recovery.engine import Resources
    from recovery.store import check_server

    settings = settings or load()
    try:
        check_server(settings.mongo_uri, timeout=ANSWER_WITHIN)
        resources = Resources.connect(settings)
        resources.broker.check()
    except ServerUnavailable as error:
        if command := _up(settings):
            error.add_note(f"With these settings: `{command}`")
        raise
    return resources


def _up(settings: Settings) -> str | None:
    """`recovery up` for servers on this machine, on other ports than its own defaults; None for others."""
    found = [_LOCAL.fullmatch(address) for address in (settings.mongo_uri, settings.broker_url)]
    ports = [one[1] for one in found if one]
    if len(ports) < 2 or ports == ["27017", "6379"]:
        return None
    return f"recovery up --mongo-port {ports[0]} --redis-port {ports[1]}"


def seconds_between(earlier: datetime | None, later: datetime) -> float | None:
    """How long it was from one moment to another."""
    return None if earlier is None else max(0.0, (later - earlier).total_seconds())


def short(seconds: float | None) -> str:
    """A time span as a person says it: 0.4 s, 12 s, 3 min, 5 h, 2 d."""
    if seconds is None:
        return "–"
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
