"""Formats of values for people: durations (`90s`, `10m`), counts (`1 task`, `2 tasks`), and stored text.

Settings, options and output use the same form of durations, both to read and to write.

Stored text (ids, names, errors and their stacks) may contain any character. On a terminal, an escape sequence can clear
the screen or overwrite earlier lines. In a log, a line break fakes a line. Invisible characters, such as a change of
the writing direction or a zero-width space, make one name look like another. Therefore `printable` escapes all such
characters as in a Python literal: `\\x1b`, `\\u202e`. This form is for people only; JSON output has the text unchanged.
It is applied at output, by the consoles of `recovery.cli.output` and by `log_lines` for all log records.
"""

from __future__ import annotations

import re
from pathlib import Path

UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
"""{unit: seconds}, the longest unit first."""

EXAMPLES = "90, 90s, 10m, 2h or 1d"

_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}"
_DURATION = re.compile(rf"\+?({_NUMBER})([eE][+-]?[0-9]{{1,2}})?({'|'.join(UNITS)})?")
_DIGITS = 6
"""Digits after the decimal point. Records store milliseconds, and measured times are accurate to microseconds at best.
"""
# Invisible characters that Unicode classifies as letters or marks (Default_Ignorable_Code_Point).
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_QUOTED = re.compile(r"""(?s)\s*(['"]).*\1\s*""")


def parse_duration(text: str) -> float:
    """Return the seconds of a text: a number, optionally with a unit (`ms`, `s`, `m`, `h`, `d`). The default unit is
    seconds.

    The caller checks bounds.

    Raises:
        ValueError: The text is anything else, for example negative, `inf` or `nan`. The message says what is valid.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"must be a duration, for example {EXAMPLES}")
    number, exponent, unit = match.groups()
    return float(f"{number}{exponent or ''}") * UNITS[unit or "s"]


def show_duration(seconds: float) -> str:
    """Return the exact duration in the form that `parse_duration` reads.

    The unit is the longest one that gives a whole number (`2h`, `90m`, `90s`), otherwise seconds (`0.25s`).
    """
    for unit in ("d", "h", "m"):
        if seconds and seconds % UNITS[unit] == 0:
            return f"{seconds / UNITS[unit]:.0f}{unit}"
    return f"{_plain(seconds)}s"


def show_age(seconds: float | None) -> str:
    """Return an approximate duration, such as 0.4s, 12s, 3m, 5h or 2d; a dash for None."""
    if seconds is None:
        return "–"
    for unit in ("d", "h", "m"):
        if abs(seconds) >= 2 * UNITS[unit]:
            return f"{seconds / UNITS[unit]:.0f}{unit}"
    return f"{seconds:.0f}s" if abs(seconds) >= 10 else f"{_plain(round(seconds, 1))}s"


def _plain(seconds: float) -> str:
    """Return a number without an exponent and without trailing zeros."""
    return f"{seconds:.{_DIGITS}f}".rstrip("0").rstrip(".") or "0"


def count(number: int, what: str) -> str:
    """Return a number with its unit: 1 task, 2 tasks.

    Args:
        number: The number.
        what: The unit in the singular. Its plural must end with s, or with es if the singular ends with s.
    """
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what}{'es' if what.endswith('s') else 's'}"


def printable(text: object, most: int | None = None) -> str:
    """Return a text on one line, with only printable characters, and cut after `most` characters."""
    shown = str(text)
    if most is not None and len(shown) > most:
        shown = f"{shown[:most]}…"
    if shown.isprintable() and not _INVISIBLE.search(shown):
        return shown
    return "".join(map(_character, shown))


def printable_lines(text: object) -> str:
    """Return a text with only printable characters, line breaks and tabs. It is for texts that have several lines."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in str(text).split("\n"))


def printable_json(text: str) -> str:
    """Return a JSON text with the same value and only printable characters.

    Args:
        text: A JSON text that was written without escaping non-ASCII characters.
    """
    if text.isprintable() and not _INVISIBLE.search(text):
        return text
    return "".join(json_escape(character) if _character(character) != character else character for character in text)


def json_escape(character: str) -> str:
    """Return a character as JSON's `\\uXXXX`; as two of them if it is beyond the first 65,536 characters."""
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[start : start + 2].hex()}" for start in range(0, len(units), 2))


def _character(character: str) -> str:
    if character.isprintable() and not _INVISIBLE.match(character):
        return character
    return character.encode("unicode_escape", errors="surrogatepass").decode()


def unseen(value: object) -> str:
    """Return a sentence about an invisible mistake in a wrong text, and how to correct it. It follows another sentence.

    An empty text means that no such mistake was found.
    """
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
