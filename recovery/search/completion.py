"""What a shell offers for the last term of a search that is being typed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from recovery.search.fields import FIELDS, Field, Kind

SAVED = "@"
Values = Callable[[str, str, str], Iterable[str]]
"""(field, member, start) → what there is of it that begins so: `("label", "customer", "ac")`. Of the field "label" and
no member names of labels, of the field "@" names of saved searches."""

EXAMPLES = {
    "started": (">1h", ">1d", ">7d", "<1d", "<30d"),
    "ended": (">1h", ">1d", ">7d", "<1d", "<30d"),
    "idle": (">10m", ">1h", ">1d", "<10m"),
    "timeouts": (">1", ">3", ">10"),
}
"""Of what is not to be found in the database."""
_SPECIAL = frozenset(' \t\n()"')
"""What a value is quoted for."""


def complete(typed: str, values: Values) -> list[str]:
    """Texts that may be in the place of what was typed, each with its last term complete."""
    start = _last_term(typed)
    before, term = typed[:start], typed[start:]
    return [before + offer for offer in _terms(term, values)]


def _last_term(typed: str) -> int:
    """Where it begins: after the last space or parenthesis that is in no quotes."""
    start, quoted = 0, False
    for place, character in enumerate(typed):
        if character == '"' and typed[place - 1 : place] != "\\":
            quoted = not quoted
        elif not quoted and (character.isspace() or character in "()"):
            start = place + 1
    return start


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
    return [f"{head}:{one}" for one in _values(field, member, value, values)]


def _only_one(names: list[str], values: Values) -> list[str]:
    """These; a field alone with its values, since a shell takes the only one that it is offered for a whole word."""
    if len(names) == 1 and names[0].endswith((":", ".")):
        return _terms(names[0], values) or names
    return names


def _values(field: Field, member: str, typed: str, values: Values) -> list[str]:
    quote = '"' if typed.startswith('"') else ""
    start = typed.removeprefix('"').replace('\\"', '"').replace("\\\\", "\\")
    if examples := EXAMPLES.get(field.name):
        return [one for one in examples if one.startswith(typed)]
    there = field.words or values(field.name, member, start)
    return [_quoted(one, quote) for one in there if one.startswith(start)]


def _quoted(value: str, quote: str) -> str:
    if not quote and not _SPECIAL & set(value) and not value.startswith(("<", ">", "=")) and not value.endswith("*"):
        return value
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _shown(field: Field) -> str:
    if field.family:
        return f"{field.name}."
    return field.name if field.kind is Kind.FLAG else f"{field.name}:"
