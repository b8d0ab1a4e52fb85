"""The name and the version of an application.

The application's code can give both. The default name is the top-level package of the module that makes the
application. The default version is the version of the package's distribution, or else a hash of the signatures of all
actors.
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
    """An actor, reduced to the function whose signature is hashed."""

    @property
    def function(self) -> Callable[..., Any]: ...


def checked_version(version: Any, argument: str = "version") -> str:
    """Return `version` as a plain text. Raises InputError, which names `argument`, if an application cannot have this
    version."""
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        requirement = f"the version of an application has {_VERSION_WANTED}, as in 1.4.0"
        raise InputError(f"Recovery({argument}={given.shown(version)}): {requirement}")
    return given.exact(version)


def checked_versions(versions: Iterable[Any]) -> frozenset[str]:
    """Return the versions with which an application is compatible. Raises InputError if one of them is not allowed."""
    if isinstance(versions, str | bytes) or not isinstance(versions, Iterable):
        shown = given.shown(versions)
        raise InputError(f'Recovery(compatible_with={shown}): give it a list of versions, as in ["1.3.0", "1.4.0"]')
    return frozenset(checked_version(version, "compatible_with") for version in versions)


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
    # An editable distribution may be found twice, because its sources may contain metadata as well.
    installed = list(distributions(name=names.pop())) if len(names) == 1 else []
    if not installed or any(map(_is_editable, installed)):
        return None
    version = installed[0].version
    return version if isinstance(version, str) and _VERSION.fullmatch(version) else None


def _is_editable(distribution: Distribution) -> bool:
    """Return whether a distribution is installed in editable mode. Some build backends list its packages anyway."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        return bool(origin["dir_info"]["editable"])
    except (KeyError, TypeError, ValueError):  # installed from an index, or by something other than pip
        return False


def _hash(actors: Mapping[str, HasFunction]) -> str:
    # The canary is left out, because workers add it to the actors of the application and clients do not.
    lines = sorted(
        f"{name}({', '.join(_parameters(actor.function))})" for name, actor in actors.items() if name != CANARY
    )
    return f"actors-{hashlib.sha256(chr(10).join(lines).encode()).hexdigest()[:_HASH_DIGITS]}"


def _parameters(function: Callable[..., Any]) -> Iterable[str]:
    """Return the name and kind of each parameter, and whether it has a default. The text of the default is left out,
    because it may contain an address, which differs between processes."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return ()
    return (
        f"{parameter.kind.name} {parameter.name}{'=' if parameter.default is not parameter.empty else ''}"
        for parameter in parameters
    )


_NAME_WANTED = "letters, digits, '_', '.' and '-', at most 50, a letter or '_' first"
_OTHER = re.compile(r"[^A-Za-z0-9_.-]")


def checked_name(name: Any) -> str:
    """Return `name` as a plain text. Raises InputError if an application cannot have this name."""
    if not isinstance(name, str) or not re.fullmatch(SHORT_NAME, name):
        raise InputError(
            f"Recovery(name={given.shown(name)}): the name of an application has {_NAME_WANTED}, as in shop"
        )
    return given.exact(name)


def module_of_maker(made: object) -> str:
    """Return the name of the module that makes an object. Call this function in the `__init__` of the object."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_locals.get("self") is made:  # skip the constructors of derived classes
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
    return _name_of_program() if name == "__main__" else name


def name_of_package(module: str) -> str:
    """Return the default name of an application: the top-level package of the module that makes it."""
    top = _OTHER.sub("_", module.partition(".")[0])[:50]
    return top if re.fullmatch(SHORT_NAME, top) else "application"


def _name_of_program() -> str:
    """Return the name of the module that Python was started with, or the name of its file."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return str(spec.name) if spec is not None else Path(str(getattr(main, "__file__", ""))).stem
