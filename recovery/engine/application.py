"""The name and the version of an application.

The name is what its code gives, or the top-level package that makes it; the version what its code gives, its
distribution's, or a hash of its actors' signatures.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import Distribution, distributions, packages_distributions
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

from recovery.errors import InputError
from recovery.limits import SHORT_NAME
from recovery.records import given
from recovery.records.ids import CANARY

_VERSION_WANTED = "letters, digits, '_', '.', '+', '!' and '-', at most 50, a letter or digit first"
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+!-]{0,49}")
_HASH_DIGITS = 12


class HasFunction(Protocol):
    """An actor, as far as its signature is concerned."""

    @property
    def function(self) -> Callable[..., Any]: ...


def checked_version(version: Any, argument: str = "version") -> str:
    """Return a version that an application can have. Raises InputError."""
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        told = f"the version of an application has {_VERSION_WANTED}, as in 1.4.0"
        raise InputError(f"Recovery({argument}={given.shown(version)}): {told}")
    return given.exact(version)


def checked_versions(versions: Iterable[Any]) -> frozenset[str]:
    """Return versions with which an application is compatible. Raises InputError."""
    if isinstance(versions, str | bytes) or not isinstance(versions, Iterable):
        told = given.shown(versions)
        raise InputError(f'Recovery(compatible_with={told}): give it a list of versions, as in ["1.3.0", "1.4.0"]')
    return frozenset(checked_version(one, "compatible_with") for one in versions)


def default_version(module: str, actors: Mapping[str, HasFunction]) -> str:
    """Return the version of an application whose code gives none.

    Args:
        module: The module that makes the application.
        actors: All of its actors by name.

    Returns:
        The version of the distribution that installed the module's top-level package, if there is exactly one.
        Otherwise `actors-` and a hash of the names and parameters of the actors. Code that is installed in editable
        mode belongs to no distribution here: its version stays the same while it is edited.
    """
    return _distribution_version(module.partition(".")[0]) or _hash(actors)


@cache
def _distribution_version(package: str) -> str | None:
    names = set(packages_distributions().get(package, ()))
    # One that is installed in editable mode may be found twice: beside its sources there may be metadata as well.
    found = list(distributions(name=names.pop())) if len(names) == 1 else []
    if not found or any(map(_is_editable, found)):
        return None
    version = found[0].version
    return version if isinstance(version, str) and _VERSION.fullmatch(version) else None


def _is_editable(found: Distribution) -> bool:
    """Whether a distribution is installed in editable mode. Some build backends name its packages even so."""
    try:
        origin = json.loads(found.read_text("direct_url.json") or "{}")
        return bool(origin["dir_info"]["editable"])
    except (KeyError, TypeError, ValueError):  # installed from an index, or by something other than pip
        return False


def _hash(actors: Mapping[str, HasFunction]) -> str:
    # Workers add the canary to the actors of the application; clients do not.
    lines = sorted(f"{name}({', '.join(_parameters(one.function))})" for name, one in actors.items() if name != CANARY)
    return f"actors-{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:_HASH_DIGITS]}"


def _parameters(function: Callable[..., Any]) -> Iterable[str]:
    """The name and kind of each parameter, and whether it has a default. The default's own text is left out: it may
    contain an address, which differs between processes."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return ()
    return (f"{one.kind.name} {one.name}{'=' if one.default is not one.empty else ''}" for one in parameters)


_NAME_WANTED = "letters, digits, '_', '.' and '-', at most 50, a letter or '_' first"
_OTHER = re.compile(r"[^A-Za-z0-9_.-]")


def checked_name(name: Any) -> str:
    """Return a name that an application can have. Raises InputError."""
    if not isinstance(name, str) or not re.fullmatch(SHORT_NAME, name):
        raise InputError(
            f"Recovery(name={given.shown(name)}): the name of an application has {_NAME_WANTED}, as in shop"
        )
    return given.exact(name)


def module_of_maker(made: object) -> str:
    """Return the name of the module that makes an object; call it in the object's `__init__`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_locals.get("self") is made:  # constructors of classes derived from it
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
    return _name_of_program() if name == "__main__" else name


def name_of_package(module: str) -> str:
    """Return the name that an application has by default: the top-level package of the module that makes it."""
    top = _OTHER.sub("_", module.partition(".")[0])[:50]
    return top if re.fullmatch(SHORT_NAME, top) else "application"


def _name_of_program() -> str:
    """The module that Python was started with, by its name or its file."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return str(spec.name) if spec is not None else Path(str(getattr(main, "__file__", ""))).stem
