"""What a search is, once it is read: terms, and how they are combined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


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
