"""Makes the error messages for invalid searches, which point at the column of the problem."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from lark import Token, UnexpectedCharacters, UnexpectedEOF, UnexpectedInput

from recovery.errors import InputError
from recovery.search.fields import FIELDS

SHOWN = 20
"""Maximum number of names that a message lists."""


def no_field(name: str) -> str:
    """Return the message for an unknown field. It suggests the nearest name, or lists all names."""
    known = [f"{field.name}.NAME" if field.family else field.name for field in FIELDS.values()]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"no field is called {name!r}; {hint}"


def no_search(name: str, known: Iterable[str]) -> str:
    """Return the message for the name of a saved search that does not exist."""
    return not_saved(name, known, "search", "recovery search save")


def not_saved(name: str, known: Iterable[str], noun: str, how_to_save: str) -> str:
    """Return the message for an unknown name of a saved object. It suggests the nearest name, or lists some names.

    Args:
        name: The unknown name.
        known: All names that exist.
        noun: The kind of object, for example `search`.
        how_to_save: The command that saves such an object.
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        hint = f"did you mean @{near[0]}?"
    else:
        listed = ", ".join(f"@{known_name}" for known_name in names[:SHOWN])
        hint = f"there are {listed}" if names else f"there is none (`{how_to_save}`)"
    return f"no {noun} is saved as {name!r}; {hint}"


def unexpected(text: str, error: UnexpectedInput) -> InputError:
    """Return the error for a text that does not match the grammar."""
    place = len(text) if isinstance(error, UnexpectedEOF) else getattr(error, "pos_in_stream", None)
    token = getattr(error, "token", None)
    if token is not None and token.type == "$END":
        place = len(text)
    at = place if place is not None else len(text)
    if at >= len(text.rstrip()):
        message = "the search ends too early: a term is missing, or a closing parenthesis"
    elif text[at] == '"':
        message = "a quote that is not closed, or is in the wrong place"
    elif isinstance(error, UnexpectedCharacters) or (token is not None and token.type == "VALUE"):
        word = text[at:].split()[0]
        message = f"{word!r} is no term: a term is FIELD:VALUE, as in state:broken; {no_field(word)}"
    else:
        message = f"{text[at:].split()[0]!r} is not expected here"
    return _pointed(text, at, message)


def wrong(text: str, token: Token, said: str) -> InputError:
    """Return the error with the message `said`, which points at the token."""
    return _pointed(text, token.start_pos or 0, said)


def _pointed(text: str, at: int, message: str) -> InputError:
    """Return an error with the column, the message, and an excerpt of the text with a caret under this position."""
    line = " ".join(text[max(0, at - 60) : at + 40].splitlines())
    first, newline, others = message.partition("\n")
    return InputError(f"column {at + 1}: {first}\n{line}\n{' ' * min(at, 60)}^{newline}{others}")
