"""A search in words and dates, so that who orders something sees what it will select."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from recovery.errors import InputError
from recovery.search.language import parse
from recovery.search.query import All, And, Comparison, Node, Not, Or, Query, Term
from recovery.wording import show_duration

_NUMBERS = {
    Comparison.IS: "",
    Comparison.ABOVE: "above ",
    Comparison.BELOW: "below ",
    Comparison.AT_LEAST: "at least ",
    Comparison.AT_MOST: "at most ",
}
_MOMENTS = {
    Comparison.ABOVE: "after",
    Comparison.BELOW: "before",
    Comparison.AT_LEAST: "at or after",
    Comparison.AT_MOST: "at or before",
}
_PARTS = {Comparison.STARTS: " that begins with", Comparison.CONTAINS: " that contains"}
_SPANS = {
    Comparison.ABOVE: "longer than",
    Comparison.BELOW: "less than",
    Comparison.AT_LEAST: "at least",
    Comparison.AT_MOST: "at most",
}


def in_words(query: Query) -> str:
    """Return what a search selects: `processes of the type order that ended before 2026-01-31 00:00:00 UTC`. Relative
    times are counted from the search's `now`."""
    if isinstance(query.tree, All):
        return "all processes"
    return f"processes {_words(query.tree)}"


def stored_in_words(text: str, now: datetime) -> str:
    """Return the same of a stored text, whose relative times count from `now`."""
    try:
        return in_words(parse(text, now, is_stored=True))
    except InputError as error:  # written by another version, or by another program
        return f"unknown, because the selection can't be read: {str(error).partition(chr(10))[0]}"


def _words(node: Node, *, within: bool = False) -> str:
    match node:
        case Term():
            return _TERMS[node.field](node)
        case And(parts) | Or(parts):
            joint = " and " if isinstance(node, And) else " or "
            said = joint.join(_words(part, within=True) for part in parts)
            return f"({said})" if within else said
        case Not(part):
            return f"not {_words(part, within=True)}"
        case _:
            return "of any kind"


def _text(before: str) -> Callable[[Term], str]:
    def say(term: Term) -> str:
        named = f" {term.name}" if term.name else ""
        return f"{before}{named}{_PARTS.get(term.comparison, '')} {term.value}"

    return say


def _number(before: str) -> Callable[[Term], str]:
    return lambda term: f"{before} {_NUMBERS[term.comparison]}{term.value:g}"


def _moment(what: str) -> Callable[[Term], str]:
    def say(term: Term) -> str:
        assert isinstance(term.value, datetime)
        return f"that {what} {_MOMENTS[term.comparison]} {term.value:%Y-%m-%d %H:%M:%S} UTC"

    return say


def _idle(term: Term) -> str:
    assert isinstance(term.value, int | float)
    return f"that have been unchanged for {_SPANS[term.comparison]} {show_duration(term.value)}"


_TERMS: dict[str, Callable[[Term], str]] = {
    "type": _text("of the type"),
    "state": _text("in the state"),
    "id": _text("with the id"),
    "custom": _text("with the custom id"),
    "label": _text("with the label"),
    "key": _text("with the key"),
    "version": _text("started or partly run by the version"),
    "pinned": _text("pinned to the version"),
    "started": _moment("started"),
    "ended": _moment("ended"),
    "idle": _idle,
    "overdue": lambda _: "with an overdue deadline",
    "refused": lambda _: "with a task that waits for a newer worker, or for one of the version that it is pinned to",
    "error": _text("with the error"),
    "message": _text("with an error message"),
    "code": _number("with the error code"),
    "fingerprint": _text("with the error fingerprint"),
    "actor": _text("with an open or failed task of the actor"),
    "timeouts": _number("with a task whose number of lost attempts is"),
    "rule": _text("for which an operation found the rule"),
}
"""For each field of the language, the words for a term of it."""
