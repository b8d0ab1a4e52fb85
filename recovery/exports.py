"""Names that a package exports and imports at their first use.

A command that asks MongoDB alone, and Spark's executors, then do not wait for the drivers and libraries of the rest of
a package.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


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
