"""What is imported at its first use: names that a package exports, and the parts of an object.

A command that asks MongoDB alone, and Spark's executors, then do not wait for the drivers and libraries of the rest of
a package. A command that reads two collections does not wait for the queries and updates of all others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exported(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package that exports names of its modules.

    Args:
        package: The package's `__name__`.
        modules: Names, with spaces between, by the module that they are imported from. A module's name is that
            below the package. No name may be a module of the package, which its import would put in the name's place.

    Type checkers read the same imports under `if TYPE_CHECKING:`; a test compares the two.
    """
    homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return get


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


def load_all(owner: type) -> None:
    """Import the classes of all parts: for programs that fork, whose children then share them. No thread of such a
    program may import one while it forks: the lock of the import would stay locked in the child."""
    for found in vars(owner).values():
        if isinstance(found, Part):
            found._load()
