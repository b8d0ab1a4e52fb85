"""The tree of a parsed search, and its description in words and dates, which shows an operator what it selects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from recovery.wording import show_duration


class Comparison(StrEnum):
    """The comparison of a term's field with its value."""

    IS = "="
    STARTS = "*"
    """The field's text starts with the value."""
    CONTAINS = "~"
    """The field's text contains the value, in upper or lower case."""
    ABOVE = ">"
    BELOW = "<"
    AT_LEAST = ">="
    AT_MOST = "<="


Value = str | float | datetime | None


@dataclass(frozen=True, slots=True)
class Term:
    """A condition on a field. For fields of a family, such as `label`, `name` is the user-defined name."""

    field: str
    comparison: Comparison
    value: Value
    name: str = ""


@dataclass(frozen=True, slots=True)
class All:
    """A condition that every process meets."""


@dataclass(frozen=True, slots=True)
class And:
    """A condition that is met if all parts are met."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """A condition that is met if any part is met."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """A condition that is met if its part is not met."""

    part: Node


Node = Term | All | And | Or | Not


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed search: its tree, its text, and the moment from which its relative times count."""

    text: str
    """The search with the texts of saved searches instead of their names, so that later changes of these do not affect
    it."""
    tree: Node
    now: datetime
    saved: tuple[str, ...] = ()
    """Names of the saved searches that the search names directly."""

    def terms(self) -> Iterator[Term]:
        """Yield all terms of the tree."""
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
    """Return in words what a search selects: `processes of the type order that ended before 2026-01-31 00:00:00 UTC`.
    Relative times are shown as dates, counted from the search's `now`."""
    if isinstance(query.tree, All):
        return "all processes"
    return f"processes {_words(query.tree)}"


def _words(node: Node, *, within: bool = False) -> str:
    match node:
        case Term():
            return _TERMS[node.field](node)
        case And(parts) | Or(parts):
            joint = " and " if isinstance(node, And) else " or "
            words = joint.join(_words(part, within=True) for part in parts)
            return f"({words})" if within else words
        case Not(part):
            return f"not {_words(part, within=True)}"
        case _:
            return "of any kind"


def _text(prefix: str) -> Callable[[Term], str]:
    def describe(term: Term) -> str:
        named = f" {term.name}" if term.name else ""
        return f"{prefix}{named}{_PARTS.get(term.comparison, '')} {term.value}"

    return describe


def _number(prefix: str) -> Callable[[Term], str]:
    return lambda term: f"{prefix} {_NUMBERS[term.comparison]}{term.value:g}"


def _moment(verb: str) -> Callable[[Term], str]:
    def describe(term: Term) -> str:
        assert isinstance(term.value, datetime)
        return f"that {verb} {_MOMENTS[term.comparison]} {term.value:%Y-%m-%d %H:%M:%S} UTC"

    return describe


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
"""{field: function that describes a term of the field in words}."""
