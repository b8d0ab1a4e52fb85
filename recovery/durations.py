"""Durations as people write and read them: `90s`, `10m`, `2h`, `1d`. One form for settings, options and output."""

from __future__ import annotations

import re

UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
"""{unit: seconds}, the longest first."""

EXAMPLES = "90, 90s, 10m, 2h or 1d"

_NUMBER = r"[0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20}"
_DURATION = re.compile(rf"\+?({_NUMBER})([eE][+-]?[0-9]{{1,2}})?({'|'.join(UNITS)})?")
_DIGITS = 6
"""After the point: records keep milliseconds, and what is measured is no more exact than microseconds."""


def parse_duration(text: str) -> float:
    """Seconds of a text: a number, and a unit (`ms`, `s`, `m`, `h`, `d`) unless it is seconds. Bounds are the caller's.

    Raises ValueError, which says what is right, for any other text: also for a negative number, `inf` and `nan`.
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"must be a duration, for example {EXAMPLES}")
    number, exponent, unit = found.groups()
    return float(f"{number}{exponent or ''}") * UNITS[unit or "s"]


def show_duration(seconds: float) -> str:
    """The exact duration, as `parse_duration` reads it: in the longest unit that leaves a whole number (`2h`, `90m`,
    `90s`), else in seconds (`0.25s`)."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % UNITS[unit] == 0:
            return f"{seconds / UNITS[unit]:.0f}{unit}"
    return f"{_plain(seconds)}s"


def show_age(seconds: float | None) -> str:
    """About how long, as a person says it: 0.4s, 12s, 3m, 5h, 2d; a dash for None."""
    if seconds is None:
        return "–"
    for unit in ("d", "h", "m"):
        if abs(seconds) >= 2 * UNITS[unit]:
            return f"{seconds / UNITS[unit]:.0f}{unit}"
    return f"{seconds:.0f}s" if abs(seconds) >= 10 else f"{_plain(round(seconds, 1))}s"


def _plain(seconds: float) -> str:
    """Without an exponent, and without zeros at its end."""
    return f"{seconds:.{_DIGITS}f}".rstrip("0").rstrip(".") or "0"
