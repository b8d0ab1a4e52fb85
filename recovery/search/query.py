"""What a search is, once it is read: terms, and how they are combined. And the same in words and dates, so that who
orders something sees what it will select."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from recovery.wording import show_duration


class Comparison(StrEnum):
    """How a term compares."""

    IS = "="
    STARTS = "*"
    """With this text."""
    CONTAINS = "~"
    """This text somewhere in it, in upper or lower case."""
    ABOVE = ">"
    BELOW = "<"
    AT_LEAST = ">="
    AT_MOST = "<="


Value = str | float | datetime | None


@dataclass(frozen=True, slots=True)
class Term:
    """A field, and what it is to be. Of `label` and other families `name` says which."""

    field: str
    comparison: Comparison
    value: Value
    name: str = ""


@dataclass(frozen=True, slots=True)
class All:
    """Every process."""


@dataclass(frozen=True, slots=True)
class And:
    """All of these."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of these."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """What is not this."""

    part: Node


Node = Term | All | And | Or | Not


@dataclass(frozen=True, slots=True)
class Query:
    """A search: its tree, its text, and the moment that its relative times count from."""

    text: str
    """With the texts of saved searches in the place of their names: it stays the same whatever becomes of those."""
    tree: Node
    now: datetime
    saved: tuple[str, ...] = ()
    """Names of saved searches that it has itself."""

    def terms(self) -> Iterator[Term]:
        """All terms of it, whatever they are combined to."""
        yield from _terms(self.tree)


def _terms(node: Node) -> Iterator[Term]:
    match node:
        case Term():
            yield node
        case And(parts) | Or(parts):
            for part in parts:
                yield from _terms(part)
        case Not(part):
            yield from _terms(part)


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
