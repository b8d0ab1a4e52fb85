"""The lines of `recovery` that pages and messages tell readers to type."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from recovery.cli.main import app
from tests.docs.blocks import blocks

PROGRAM = "recovery"
HALF = "<Tab>"
"""Of a line that is shown as it is typed."""
_SPAN = re.compile(r"`(recovery [^`]+)`")
_END = re.compile(r"^(?:\||>|&&?|;|2>.*)$")
"""Of a line, for a shell."""
_ALTERNATIVES = re.compile(r"[a-z-]+(?:\|[a-z-]+)+")
_OPTION = re.compile(r"^--?[a-z]")


def typed(page: Path) -> Iterator[list[str]]:
    """The words of each line that a page's blocks have typed at a prompt."""
    for language in ("console", "sh", "bash"):
        for block in blocks(page, language):
            for line in block.replace("\\\n", " ").splitlines():
                prompt = "$ " if language == "console" else ""
                if line.startswith(f"{prompt}{PROGRAM} ") and HALF not in line:
                    yield _up_to_shell(shlex.split(line.removeprefix(prompt), comments=True)[1:])


def mentioned(text: str) -> Iterator[list[str]]:
    """The words of each line that stands within a text in backquotes, of `save|list|remove` each in turn."""
    for span in _SPAN.findall(text):
        words = re.sub(r"\|\s+", "|", span).split()[1:]
        places = [place for place, word in enumerate(words[:2]) if _ALTERNATIVES.fullmatch(word)]
        ways = words[places[0]].split("|") if places else [""]
        yield from ([*words[: places[0]], way, *words[places[0] + 1 :]] if places else words for way in ways)


def parse(words: list[str]) -> None:
    """Have it parsed as it is when it is typed. Raises what Typer says of it; AssertionError for an option of the
    program itself that there is not."""
    command, rest = find(words)
    if hasattr(command, "commands"):  # its options act when they are parsed
        assert not unknown(words), f"{unknown(words)} of {PROGRAM} {' '.join(words)}"
    else:
        command.make_context(PROGRAM, rest).close()


def unknown(words: list[str]) -> list[str]:
    """Of a line that is told and not whole, what there is not: commands and options."""
    try:
        command, rest = find(words)
    except KeyError as error:
        return [str(error)]
    known = {option for param in command.params for option in (*param.opts, *param.secondary_opts)}
    options = (word.partition("=")[0].strip("[]().,…'\"") for word in rest)
    return [option for option in options if _OPTION.match(option) and option not in {*known, "--help", "-h"}]


def find(words: Iterable[str]) -> tuple[Any, list[str]]:
    """The command that is named, as far as it is, and what comes after. Raises KeyError."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands") and rest and re.match(r"[a-z]", rest[0]):
        command = command.commands[rest.pop(0).rstrip(",.:;")]
    return command, rest


def _up_to_shell(words: list[str]) -> list[str]:
    end = next((place for place, word in enumerate(words) if _END.match(word)), len(words))
    return words[:end]
