"""How values are written for people: durations (`90s`, `10m`), counts (`1 task`, `2 tasks`), and stored text.

Durations have one form for settings, options and output, and are read from it as well.

Stored text (ids, names, errors and their stacks) is whatever somebody gave. On a terminal an escape sequence clears
the screen or rewrites what stands above, a line break in a log is a line that nobody wrote, and what is not seen (an
override of the writing direction, a space of no width) makes one name look like another. So `printable` writes each
such character as Python writes it in a literal: `\\x1b`, `\\u202e`. This form is for reading; JSON output has the text
itself. It is applied where text leaves us: by the consoles of `recovery.cli.output`, and by `log_lines` to all that is
logged.
"""

from __future__ import annotations

import re
from pathlib import Path

UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
"""{unit: seconds}, the longest first."""

EXAMPLES = "90, 90s, 10m, 2h or 1d"

_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}"
_DURATION = re.compile(rf"\+?({_NUMBER})([eE][+-]?[0-9]{{1,2}})?({'|'.join(UNITS)})?")
_DIGITS = 6
"""After the point: records keep milliseconds, and what is measured is no more exact than microseconds."""
# Letters and marks by their category, and yet nothing that is seen (Unicode's Default_Ignorable_Code_Point).
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
_QUOTED = re.compile(r"""(?s)\s*(['"]).*\1\s*""")


def parse_duration(text: str) -> float:
    """Return the seconds of a text: a number, and a unit (`ms`, `s`, `m`, `h`, `d`) unless it is seconds. The caller
    checks bounds.

    Raises ValueError, which says what is right, for any other text: also for a negative number, `inf` and `nan`.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"must be a duration, for example {EXAMPLES}")
    number, exponent, unit = found.groups()
    return float(f"{number}{exponent or ''}") * UNITS[unit or "s"]


def show_duration(seconds: float) -> str:
    """Return the exact duration, as `parse_duration` reads it: in the longest unit that leaves a whole number (`2h`,
    `90m`, `90s`), else in seconds (`0.25s`)."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % UNITS[unit] == 0:
            return f"{seconds / UNITS[unit]:.0f}{unit}"
    return f"{_plain(seconds)}s"


def show_age(seconds: float | None) -> str:
    """Return about how long, as a person says it: 0.4s, 12s, 3m, 5h, 2d; a dash for None."""
    if seconds is None:
        return "–"
    for unit in ("d", "h", "m"):
        if abs(seconds) >= 2 * UNITS[unit]:
            return f"{seconds / UNITS[unit]:.0f}{unit}"
    return f"{seconds:.0f}s" if abs(seconds) >= 10 else f"{_plain(round(seconds, 1))}s"


def _plain(seconds: float) -> str:
    """Return a number without an exponent, and without zeros at its end."""
    return f"{seconds:.{_DIGITS}f}".rstrip("0").rstrip(".") or "0"


def count(number: int, what: str) -> str:
    """Return a number with what it counts: 1 task, 2 tasks. `what` is in the singular, and its plural ends with s or
    es."""
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what}{'es' if what.endswith('s') else 's'}"


def printable(text: object, most: int | None = None) -> str:
    """Return a text on one line, of characters that are seen; cut after `most` of them."""
    shown = str(text)
    if most is not None and len(shown) > most:
        shown = f"{shown[:most]}…"
    if shown.isprintable() and not _INVISIBLE.search(shown):
        return shown
    return "".join(map(_character, shown))


def printable_lines(text: object) -> str:
    """Return a text of characters that are seen, with its line breaks and tabs, for texts that are meant to have
    lines."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in str(text).split("\n"))


def printable_json(text: str) -> str:
    """Return a JSON text of the same value, of characters that are seen. `text` was written with its letters as they
    are."""
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


def unseen(value: object) -> str:
    """Return what the author of a wrong text may not see in it, and what to do, as a sentence that follows another
    one."""
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
