"""Checks of what callers give, before anything is asked of a server.

To MongoDB a dict in the place of a name is a query, and bytes or a number are other keys than the text that was meant:
each is an InputError that says what was given, where, and what is wanted.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from recovery.errors import InputError
from recovery.limits import LONGEST
from recovery.wording import EXAMPLES, parse_duration

MAX_LENGTH = 500
"""Characters of a name or an id. The longest of ours has 100; a custom id may well be an address."""
_SHOWN = 60


def text(value: Any, what: str, *, longest: int = MAX_LENGTH) -> str:
    """A text of 1 to `longest` characters, as an exact str: an object of a subclass of str may compare as it likes."""
    if not isinstance(value, str):
        raise InputError(f"{what}={shown(value)}: must be a text of 1 to {longest:,} characters, not {_kind(value)}")
    plain = exact(value)
    if not 0 < len(plain) <= longest:
        raise InputError(f"{what}={shown(plain)}: must be a text of 1 to {longest:,} characters; it has {len(plain):,}")
    if not is_unicode(plain):
        raise InputError(f"{what}={shown(plain)}: holds a lone surrogate, which is not text; remove it")
    return plain


def exact(value: str) -> str:
    """The same text as an exact str: what a subclass says of itself, its parts and its form, is its own affair."""
    return str.__str__(value)


def number(value: Any) -> int | float | None:
    """A number as an exact int or float; None for what is none, as a switch."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float.__float__(value) if isinstance(value, float) else int.__int__(value)


def is_finite(value: int | float) -> bool:
    """Return whether a float can hold this number. `math.isfinite` raises for an integer that is too large."""
    return abs(value) <= sys.float_info.max


def is_unicode(value: str) -> bool:
    """Whether a text has no lone surrogates, for which UTF-8 has no bytes."""
    return value.encode(errors="ignore").decode() == value


def duration(value: Any) -> int | float | None:
    """Return the seconds of a number, of a timedelta, or of a text such as `5s`; None for anything else.

    Raises ValueError for a text that is no duration; its message says what is one.
    """
    if isinstance(value, timedelta):
        return timedelta.total_seconds(value)
    return parse_duration(exact(value)) if isinstance(value, str) else number(value)


def seconds(value: Any, what: str) -> float:
    """A time that is no less than 0; one that is longer than the longest of all is that."""
    try:
        plain = duration(value)
    except ValueError as error:
        raise InputError(f"{what}={shown(value)}: {error}") from None
    if plain is None or not plain >= 0:
        raise InputError(f"{what}={shown(value)}: must be a duration, 0 or more, for example {EXAMPLES}")
    return min(plain, LONGEST)


def shown(value: Any) -> str:
    """What was given, as it may be shown: what can't be printed is escaped, and what is long is cut."""
    try:
        told = exact(repr(exact(value) if isinstance(value, str) else value))
    except Exception:  # somebody else's code, or a number of thousands of digits
        return f"<{_kind(value)}>"
    return told if len(told) <= _SHOWN else f"{told[:_SHOWN]}…"


def _kind(value: Any) -> str:
    kind = exact(type(value).__qualname__)
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"
