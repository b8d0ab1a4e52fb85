"""Checks values that callers give, before any server is asked.

MongoDB would treat a dict in the place of a name as a query, and bytes or a number as a different key than the intended
text. Such values raise an InputError with the value, the name of the argument, and what is expected.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Any

from recovery.errors import InputError
from recovery.limits import LONGEST
from recovery.wording import EXAMPLES, parse_duration

MAX_LENGTH = 500
"""Maximum length of a name or an id, in characters. Our own have at most 100, but a custom id may be a URL."""
_SHOWN = 60


def text(value: Any, what: str, *, longest: int = MAX_LENGTH) -> str:
    """Return a text as an exact str, because a subclass of str may redefine comparison.

    Args:
        value: The value to check.
        what: Name of the value in errors.
        longest: Maximum length in characters; the minimum is 1.

    Raises:
        InputError: The value is not a text, is empty or too long, or contains a lone surrogate.
    """
    if not isinstance(value, str):
        raise InputError(f"{what}={shown(value)}: must be a text of 1 to {longest:,} characters, not {_kind(value)}")
    plain = exact(value)
    if not 0 < len(plain) <= longest:
        raise InputError(f"{what}={shown(plain)}: must be a text of 1 to {longest:,} characters; it has {len(plain):,}")
    if not is_unicode(plain):
        raise InputError(f"{what}={shown(plain)}: holds a lone surrogate, which is not text; remove it")
    return plain


def exact(value: str) -> str:
    """Return the same text as an exact str, without calling methods that a subclass of str may redefine."""
    return str.__str__(value)


def number(value: Any) -> int | float | None:
    """Return a number as an exact int or float; None for any other value, booleans included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float.__float__(value) if isinstance(value, float) else int.__int__(value)


def is_finite(value: int | float) -> bool:
    """Return whether a float can hold this number. Unlike `math.isfinite`, this does not raise for large integers."""
    return abs(value) <= sys.float_info.max


def is_unicode(value: str) -> bool:
    """Return whether a text has no lone surrogates, which UTF-8 cannot encode."""
    return value.encode(errors="ignore").decode() == value


def duration(value: Any) -> int | float | None:
    """Return the seconds of a number, of a timedelta, or of a text such as `5s`; None for any other type.

    Raises:
        ValueError: The text is not a duration. The message gives examples.
    """
    if isinstance(value, timedelta):
        return timedelta.total_seconds(value)
    return parse_duration(exact(value)) if isinstance(value, str) else number(value)


def seconds(value: Any, what: str) -> float:
    """Return the seconds of a duration, at most `LONGEST`. `what` names the value in errors.

    Raises:
        InputError: The value is not a duration, or is negative.
    """
    try:
        plain = duration(value)
    except ValueError as error:
        raise InputError(f"{what}={shown(value)}: {error}") from None
    if plain is None or not plain >= 0:
        raise InputError(f"{what}={shown(value)}: must be a duration, 0 or more, for example {EXAMPLES}")
    return min(plain, LONGEST)


def shown(value: Any) -> str:
    """Return the repr of a given value for a message, cut after 60 characters."""
    try:
        representation = exact(repr(exact(value) if isinstance(value, str) else value))
    except Exception:  # a foreign `__repr__` that raises, or an int with too many digits
        return f"<{_kind(value)}>"
    return representation if len(representation) <= _SHOWN else f"{representation[:_SHOWN]}…"


def _kind(value: Any) -> str:
    kind = exact(type(value).__qualname__)
    return f"{'an' if kind[:1] in 'aeiou' else 'a'} {kind}"
