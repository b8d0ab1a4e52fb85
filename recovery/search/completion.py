"""What a shell offers for the last term of a search that is being typed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from recovery.search.fields import FIELDS, Field, Kind

SAVED = "@"
Values = Callable[[str, str, str], Iterable[str]]
"""(field, member, start) → what there is of it that begins so: `("label", "customer", "ac")`. Of the field "label" and
no member names of labels, of the field "@" names of saved searches."""

_PIECES = re.compile(r'"(?:[^"\\]|\\.)*"?|[^\s()"]+|([\s()])')
"""A text in quotes, closed or not; what is in none; or a space or parenthesis, after which a term begins."""

_AGE_BEGUN = re.compile(r':(before|within|longer|shorter)\([^()\s":]*\Z', re.IGNORECASE)
"""An age that is being typed: nothing is offered for its number."""


def complete(typed: str, values: Values) -> tuple[str, list[str]]:
    """Return what was typed before the last term, and the texts that may be in that term's place.

    None of them is in quotes: a value that needs some is to be left out, since shells can't be offered it.
    """
    if _AGE_BEGUN.search(typed):
        return typed, []
    start = max((piece.end() for piece in _PIECES.finditer(typed) if piece[1]), default=0)
    return typed[:start], _terms(typed[start:], values)


def _terms(term: str, values: Values) -> list[str]:
    if term.startswith(SAVED):
        return [f"{SAVED}{name}" for name in values(SAVED, "", term[1:])]
    head, colon, value = term.partition(":")
    name, _, member = head.partition(".")
    field = FIELDS.get(name.lower())
    if field is not None and field.family and not colon and "." in head:
        return _only_one([f"{name}.{one}:" for one in values(field.name, "", member)], values)
    if not colon:
        names = [_shown(one) for one in FIELDS.values()]
        return _only_one([one for one in names if one.startswith(head.lower())], values)
    if field is None or field.kind is Kind.FLAG or bool(member) != field.family:
        return []
    candidates = field.words or values(field.name, member, value)
    # A value that begins with = is one in quotes only.
    return [f"{head}:{one}" for one in candidates if one.startswith(value) and not one.startswith("=")]


def _only_one(names: list[str], values: Values) -> list[str]:
    """These; a field alone with its values, since a shell takes the only one that it is offered for a whole word."""
    if len(names) == 1 and names[0].endswith((":", ".")):
        return _terms(names[0], values) or names
    return names


def _shown(field: Field) -> str:
    if field.family:
        return f"{field.name}."
    return field.name if field.kind is Kind.FLAG else f"{field.name}:"
