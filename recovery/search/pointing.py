"""Errors that point at what is wrong in a search."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from lark import Token, UnexpectedCharacters, UnexpectedEOF, UnexpectedInput

from recovery.errors import InputError
from recovery.search.fields import FIELDS

SHOWN = 20
"""Names that a message lists."""


def no_field(name: str) -> str:
    """What is said to a name that no field has."""
    known = [f"{field.name}.NAME" if field.family else field.name for field in FIELDS.values()]
    near = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    there = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f"no field is called {name!r}; {there}"


def no_search(name: str, known: Iterable[str]) -> str:
    """What is said to a name under which no search is saved."""
    return not_saved(name, known, "search", "recovery search save")


def not_saved(name: str, known: Iterable[str], noun: str, how_to_save: str) -> str:
    """What is said to a name under which nothing of this kind is saved."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if near:
        there = f"did you mean @{near[0]}?"
    else:
        some = ", ".join(f"@{one}" for one in names[:SHOWN])
        there = f"there are {some}" if names else f"there is none (`{how_to_save}`)"
    return f"no {noun} is saved as {name!r}; {there}"


def unexpected(text: str, error: UnexpectedInput) -> InputError:
    """What the grammar did not expect."""
    place = len(text) if isinstance(error, UnexpectedEOF) else getattr(error, "pos_in_stream", None)
    token = getattr(error, "token", None)
    if token is not None and token.type == "$END":
        place = len(text)
    at = place if place is not None else len(text)
    if at >= len(text.rstrip()):
        said = "the search ends too early: a term is missing, or a closing parenthesis"
    elif text[at] == '"':
        said = "a quote that is not closed, or is in the wrong place"
    elif isinstance(error, UnexpectedCharacters) or (token is not None and token.type == "VALUE"):
        word = text[at:].split()[0]
        said = f"{word!r} is no term: a term is FIELD:VALUE, as in state:broken; {no_field(word)}"
    else:
        said = f"{text[at:].split()[0]!r} is not expected here"
    return _pointed(text, at, said)


def wrong(text: str, token: Token, said: str) -> InputError:
    """What is said of this token."""
    return _pointed(text, token.start_pos or 0, said)


def _pointed(text: str, at: int, said: str) -> InputError:
    line = " ".join(text[max(0, at - 60) : at + 40].splitlines())
    first, newline, others = said.partition("\n")
    return InputError(f"column {at + 1}: {first}\n{line}\n{' ' * min(at, 60)}^{newline}{others}")
