"""What operators are told of process types that nobody knows: the name that may have been meant."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.engine.naming import hint
from recovery.engine.resources import Resources
from recovery.records import given
from recovery.search import And, Node, Or, Query, Term
from recovery.search.query import Comparison


def unknown_type(resources: Resources, name: str) -> str | None:
    """Return what to say of a process type that no worker has reported and no process has, with the name that may have
    been meant; None for a type that is known."""
    known = sorted(resources.store.process_types.stored())
    if name in known or resources.store.search.newest(1, process_type=name):
        return None
    there = hint(name, known, "no worker has reported any type")
    return f"no process of type {given.shown(name)} was seen; {there}"


def unknown_types(resources: Resources, query: Query) -> list[str]:
    """Return what to say of each unknown process type that a search asks for, as `unknown_type` does."""
    names = dict.fromkeys(_types_asked_for(query.tree))
    return [text for name in names if (text := unknown_type(resources, name)) is not None]


def _types_asked_for(node: Node) -> Iterator[str]:
    """The process types of a search, except of what it leaves out by `not`."""
    match node:
        case Term("type", Comparison.IS, value):
            yield str(value)
        case And(parts) | Or(parts):
            for part in parts:
                yield from _types_asked_for(part)
