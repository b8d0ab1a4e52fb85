"""The catalogues in use: the shipped ones, those of installed distributions, and an application's own classifications.

The shipped catalogues have errors of Python, MongoDB, Redis, HTTP, Couchbase, Hive's replication, and this library. A
distribution declares its catalogue by an entry point of the group `recovery.catalogues`:

    [project.entry-points."recovery.catalogues"]
    ledger = "ledger.errors:CATALOGUE"
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from recovery.errors import InputError, SettingsError
from recovery.records import given
from recovery.retry.catalogue import Catalogue, Catalogues, Entry
from recovery.retry.catalogues.couchbase import COUCHBASE
from recovery.retry.catalogues.hive_replication import HIVE_REPLICATION
from recovery.retry.catalogues.http import HTTP
from recovery.retry.catalogues.mongodb import MONGODB
from recovery.retry.catalogues.python import OWN, PYTHON
from recovery.retry.catalogues.redis import REDIS
from recovery.retry.codes import ErrorCode
from recovery.retry.reasons import UNKNOWN, Reason, reason_of

SHIPPED: tuple[Catalogue, ...] = (PYTHON, MONGODB, REDIS, HTTP, COUCHBASE, HIVE_REPLICATION, OWN)
GROUP = "recovery.catalogues"
"""Group of the entry points by which distributions declare their catalogues."""


def shipped() -> Catalogues:
    """Return the shipped catalogues. Others can be added to the result."""
    return Catalogues(list(SHIPPED))


def in_use() -> Catalogues:
    """Return the shipped catalogues and those of installed distributions. An application can add its own to the result.

    Raises:
        SettingsError: The catalogue of a distribution is unusable. The message names the distribution.
    """
    catalogues = shipped()
    for point, catalogue in _installed():
        try:
            catalogues.add(catalogue)
        except InputError as error:
            raise _unusable(point, str(error)) from error
    return catalogues


@cache
def _installed() -> tuple[tuple[EntryPoint, Catalogue], ...]:
    # The order must not depend on the file system, because the later of two catalogues counts if both know an error.
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    return tuple((point, _load(point)) for point in points)


def _load(point: EntryPoint) -> Catalogue:
    try:
        catalogue = point.load()
    except Exception as error:  # the import of the distribution's module may raise anything
        raise _unusable(point, f"{type(error).__name__}: {error}") from error
    if not isinstance(catalogue, Catalogue):
        raise _unusable(point, f"it is {given.shown(catalogue)}; it has to be a recovery.retry.Catalogue")
    return catalogue


def _unusable(point: EntryPoint, why: str) -> SettingsError:
    distribution = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "an unknown distribution"
    return SettingsError(
        f"distribution {distribution}: its entry point {point.name} = {point.value} ({GROUP}) can't be used: {why}. "
        "Correct it, or uninstall the distribution"
    )


def of_class(error: Any, code: Any, reason: Any = UNKNOWN, text: str | None = None) -> Catalogue:
    """Return a catalogue for one class of errors and its subclasses.

    Args:
        error: The class.
        code: An ErrorCode, or its number.
        reason: A Reason, or its name.
        text: What the code means; the first line of the class's docstring if None.

    Raises:
        InputError: `error` is not a class of errors, the number is outside all ranges, or there is no such reason.
    """
    if not (isinstance(error, type) and issubclass(error, BaseException)):
        raise InputError(f"{given.shown(error)} is not a class of errors; write @app.classifies(…) above a class")
    name = f"{error.__module__}.{error.__qualname__}"
    if not isinstance(code, ErrorCode):
        if type(code) is not int:
            raise InputError(
                f"{name}: its code {given.shown(code)} is not a number; give one, as in @app.classifies(27001, …)"
            )
        code = ErrorCode(code, _constant_name(error.__name__), text or _first_line(error))
    if not isinstance(reason, Reason):
        reason = reason_of(given.text(reason, "reason"))
    return Catalogue(name, (Entry(code, reason, types=frozenset({name})),))


def _constant_name(name: str) -> str:
    """Return `LedgerClosed` as `LEDGER_CLOSED`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).upper()


def _first_line(error: type) -> str:
    lines = (error.__doc__ or "").strip().splitlines()
    return lines[0] if lines else f"a {error.__name__}"
