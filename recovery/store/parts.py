"""The parts of the store, and of what is asked of Redis, each imported and made when it is first used.

A command that reads two collections then does not wait for the queries and updates of all others.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from recovery.store.schema import DECISIONS


class Part:
    """An attribute that is made when it is first used, and is kept in the object from then on."""

    def __init__(self, home: str, arguments: Callable[[Any], tuple[Any, ...]]) -> None:
        """`home` is the part's class, as `module:Class` below `recovery`; it is made of the `arguments`."""
        self._module, _, self._class = home.partition(":")
        self._arguments = arguments
        self._name = ""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, _type: type | None = None) -> Any:
        if owner is None:
            return self
        made = self._load()(*self._arguments(owner))
        # Of two threads that make it at once both get the first one: some parts remember what they read. There is no
        # lock, which a fork could leave locked in the child.
        return owner.__dict__.setdefault(self._name, made)

    def _load(self) -> Any:
        """Import the part's class."""
        return getattr(import_module(f"recovery.{self._module}"), self._class)


def part(home: str, arguments: Callable[[Any], tuple[Any, ...]]) -> Any:
    """Declare a part; see `Part`."""
    return Part(home, arguments)


def of_database(home: str) -> Any:
    """Declare a part of the store that is made of the whole database."""
    return Part(f"store.{home}", lambda store: (store._database,))


def of_collection(home: str, collection: str) -> Any:
    """Declare a part of the store that is made of one collection."""
    return Part(f"store.{home}", lambda store: (store._database[collection],))


def of_decisions(home: str) -> Any:
    """Declare a part of the store that is made of the collection `decisions` and the application's version."""
    return Part(f"store.{home}", lambda store: (store._database[DECISIONS], store._version))


def load_all(owner: type) -> None:
    """Import the classes of all parts: for programs that fork, whose children then share them. No thread of such a
    program may import one while it forks: the lock of the import would stay locked in the child."""
    for found in vars(owner).values():
        if isinstance(found, Part):
            found._load()
