"""What is said to a name that nobody knows: the one that may have been meant, or those there are."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from recovery.errors import InputError
from recovery.records import given

SHOWN = 20
"""Names that a message lists: as many as a terminal shows at a glance."""


def hint(name: str, known: Sequence[str], if_none: str) -> str:
    """`did you mean ...?`, `there are: ...`, or, where nothing is known, `if_none`."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"there are: {', '.join(known[:SHOWN])}" if known else if_none


def near(name: str, known: Iterable[str]) -> str:
    """The same for what an application has registered."""
    return hint(name, sorted(known), "the app has none")


def checked_name(name: str | None) -> str | None:
    """Return the name that a decorator gives an actor. Raises InputError for a decorator without parentheses, which
    gets the function in the name's place."""
    if callable(name):
        raise InputError(f"{place_of(name)}: write the decorator with parentheses, as in @app.actor()")
    return None if name is None else given.text(name, "name of an actor")


def place_of(function: Callable[..., Any]) -> str:
    """Where a function is defined, as in `shop.orders.ship`."""
    module, name = (getattr(function, one, "?") for one in ("__module__", "__qualname__"))
    return f"{given.shown(module)[1:-1]}.{given.shown(name)[1:-1]}"
