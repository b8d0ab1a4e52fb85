"""What all commands share: settings with the options given, consoles, the one error message, ages.

All that people read goes through `PlainConsole`: what somebody named is no markup, and no escape sequence. Programs
read JSON, which has escapes of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from recovery.cli import counting
from recovery.errors import ServerUnavailable
from recovery.settings import Settings, load
from recovery.wording import printable, printable_lines

if TYPE_CHECKING:
    from recovery.engine import Resources

AppOption = Annotated[
    str | None,
    typer.Option(
        "--app", "-A", help="Your Recovery object, package.module:name; default: RECOVERY_APP.", metavar="APP"
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs (docs/commands.md).")]

UNLIMITED = 100_000
"""Characters of a line that goes to a pipe or a file: what is copied or searched there is not wrapped."""

MAX_MESSAGE, MAX_WORD = 10_000, 300
"""Characters of an error, a hundred lines or so; and of what it repeats without a space, as an argument may be."""
_LONG = re.compile(rf"\S{{{MAX_WORD + 1},}}")

_WORD = re.compile(r"\s*(?:[^\s`]*`[^`\n]{1,200}`\S*|\S+)\s*")
"""What is not broken when a text is wrapped: a word, or a command in backticks, which people copy."""

_LOCAL = re.compile(r"(?:mongodb|redis)://(?:127\.0\.0\.1|localhost):(\d+)(?:/.*)?")

ANSWER_TIMEOUT = 3.0
"""Seconds that a server has to answer a command; one that is only slow answers in one."""


def paragraphs(text: str) -> str:
    """A command's help as Typer wants it: no line breaks but between paragraphs."""
    return "\n\n".join(" ".join(part.split()) for part in text.split("\n\n"))


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
    """A text's lines, wrapped between words and outside of commands in backticks. Of rich's own ways one cuts a long
    word, and the other wraps nothing."""
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
    """One line of texts and (text, style): no part of it begins another."""
    shown = [printable(part) if isinstance(part, str) else (printable(part[0]), part[1]) for part in parts]
    return Text.assemble(*shown, style=style)


def console() -> Console:
    """Where results go. Lines are as wide as a terminal, or as long as they are where there is none."""
    return _unlimited(PlainConsole())


def messages() -> Console:
    """Where what is said beside the results goes, in lines as long."""
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


def connect(settings: Settings | None = None, *, needs_redis: bool = True) -> Resources:
    """Connections to servers that were found to answer; unless it `needs_redis`, that one is not asked. Raises
    ServerUnavailable."""
    from recovery.engine import Resources
    from recovery.store import check_server, wait_for_no_monitor

    settings = settings or load()
    wait_for_no_monitor()
    try:
        check_server(settings.mongo_uri, timeout=ANSWER_TIMEOUT)
        resources = Resources.connect(settings)
        if needs_redis:
            resources.broker.check()
    except ServerUnavailable as error:
        if command := _up(settings):
            error.add_note(f"With these settings: `{command}`")
        raise
    counting.begin(resources)
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
