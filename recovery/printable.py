"""Stored text as it may be shown: on a terminal, in a log, in an error.

Ids, names, errors and their stacks are whatever somebody gave them. On a terminal an escape sequence clears the screen
or rewrites what stands above, a line break in a log is a line that nobody wrote, and what is not seen (an override of
the writing direction, a space of no width) makes one name look like another. Each such character is written as Python
writes it in a literal: `\\x1b`, `\\u202e`. What is shown so is for reading; JSON output has the text itself.

Applied where text leaves us: by the consoles of `recovery.cli.output`, and by `log_printable` to all that is logged.
"""

from __future__ import annotations

import logging
import re
import traceback
from pathlib import Path
from typing import Any

# Letters and marks by their category, and yet nothing that is seen (Unicode's Default_Ignorable_Code_Point).
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")

_QUOTED = re.compile(r"""(?s)\s*(['"]).*\1\s*""")


def printable(text: object, most: int | None = None) -> str:
    """A text on one line, of characters that are seen; cut after `most` of them."""
    shown = str(text)
    if most is not None and len(shown) > most:
        shown = f"{shown[:most]}…"
    if shown.isprintable() and not _INVISIBLE.search(shown):
        return shown
    return "".join(map(_character, shown))


def printable_lines(text: object) -> str:
    """The same with its line breaks, for what is meant to have several lines, and its tabs."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in str(text).split("\n"))


def printable_json(text: str) -> str:
    """A JSON text that was written with its letters as they are: the same value, of characters that are seen."""
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(json_escape(one) if _character(one) != one else one for one in text)


def json_escape(character: str) -> str:
    """`\\uXXXX`, as JSON has it: two of them past the first 65,536 characters."""
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))


def _character(one: str) -> str:
    if one.isprintable() and not _INVISIBLE.match(one):
        return one
    return one.encode("unicode_escape", errors="surrogatepass").decode()


LINES = {"recovery_lines": True}
"""Give this as `extra` to a log call whose message has lines, such as a stack."""


class PrintableRecord(logging.LogRecord):
    """A log record whose message is one line of characters that are seen. Its stack keeps its lines, as a message does
    that was logged with `extra=LINES`. All lines but the first are indented: none of them can pass for another
    record."""

    recovery_lines = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.exc_info and self.exc_info[0] is not None:
            stack = "".join(traceback.format_exception(*self.exc_info)).rstrip("\n")
            self.exc_text = _indented(stack)

    def getMessage(self) -> str:
        message = super().getMessage().rstrip("\n")  # Celery ends some of its own with one
        return _indented(message) if self.recovery_lines else printable(message)


def _indented(text: str) -> str:
    return printable_lines(text).replace("\n", "\n  ")


def log_printable() -> None:
    """From now on, in this process: whoever logs, and whatever handles it."""
    logging.setLogRecordFactory(PrintableRecord)


def unseen(value: object) -> str:
    """Return what of a wrong text its author may not see, and what to do, as a sentence that follows another one."""
    text = str(value) if isinstance(value, str | Path) else ""
    if "\r" in text:
        return ". It has a carriage return: save the file that it comes from with Unix line ends (LF)"
    if text.startswith("\ufeff"):
        return ". It begins with a byte order mark: save the file that it comes from as UTF-8 without one"
    if _QUOTED.fullmatch(text):
        return ". It is in quotes, which are a part of it here: leave them out"
    if text != text.strip():
        return ". It begins or ends with white space: leave that out"
    return ""
