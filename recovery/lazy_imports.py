"""Imports at first use: names that a package exports, and the parts of an object.

A command that only reads MongoDB, and Spark's executors, then do not load the drivers and libraries of the rest of a
package. A command that reads two collections does not load the queries and updates of the other collections.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exported(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` function of a package that exports names of its modules.

    Type checkers read the same imports under `if TYPE_CHECKING:`. A test compares the two lists.

    Args:
        package: The package's `__name__`.
        modules: Exported names, separated by spaces, by the module that defines them. Module names are relative to the
            package. No exported name may equal the name of a module of the package, because the import of that module
            would replace the exported name.
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
    """An attribute that is created at its first use and then kept in the object."""

    def __init__(self, home: str, arguments: Callable[[Any], tuple[Any, ...]]) -> None:
        """Declare the part's class and arguments.

        Args:
            home: The part's class, as `module:Class`, relative to `recovery`.
            arguments: Returns the arguments of the class, for the object that owns the part.
        """
        self._module, _, self._class = home.partition(":")
        self._arguments = arguments
        self._name = ""

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, owner: Any, _type: type | None = None) -> Any:
        if owner is None:
            return self
        value = self._load()(*self._arguments(owner))
        # If two threads create the part at once, both get the first one, because some parts cache what they read.
        # A lock is not used: a fork could leave it locked in the child.
        return owner.__dict__.setdefault(self._name, value)

    def _load(self) -> Any:
        """Import the part's class."""
        return getattr(import_module(f"recovery.{self._module}"), self._class)


def part(home: str, arguments: Callable[[Any], tuple[Any, ...]]) -> Any:
    """Declare a part; see `Part`."""
    return Part(home, arguments)


def load_all(owner: type) -> None:
    """Import the classes of all parts of a class.

    This is for programs that fork: the children then share the modules. No thread of such a program may import a part
    while the program forks, because the import lock would stay locked in the child.
    """
    for value in vars(owner).values():
        if isinstance(value, Part):
            value._load()
