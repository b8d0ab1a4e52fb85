"""The catalogues that are in use: the shipped ones, those of installed distributions, and errors that an application
classifies itself.

Shipped are errors of Python, MongoDB, Redis, HTTP, Couchbase, Hive's replication, and our own. A distribution says
where its catalogue is by an entry point of the group `recovery.catalogues`, whose name is its own:

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


def shipped() -> Catalogues:
    """Those of ours, for others to be added."""
    return Catalogues(list(SHIPPED))


def in_use() -> Catalogues:
    """The shipped catalogues and those of installed distributions, for an application to add its own. Raises
    SettingsError that names the distribution whose catalogue can't be used."""
    found = shipped()
    for point, catalogue in _installed():
        try:
            found.add(catalogue)
        except InputError as error:
            raise _unusable(point, str(error)) from error
    return found


@cache
def _installed() -> tuple[tuple[EntryPoint, Catalogue], ...]:
    # In an order that does not depend on the file system: of two that know an error the later counts.
    points = sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value))
    return tuple((point, _loaded(point)) for point in points)


def _loaded(point: EntryPoint) -> Catalogue:
    try:
        found = point.load()
    except Exception as error:  # somebody else's module, which may do anything when it is imported
        raise _unusable(point, f"{type(error).__name__}: {error}") from error
    if not isinstance(found, Catalogue):
        raise _unusable(point, f"it is {given.shown(found)}; it has to be a recovery.retry.Catalogue")
    return found


def _unusable(point: EntryPoint, why: str) -> SettingsError:
    of = f"{point.dist.name} {point.dist.version}" if point.dist is not None else "a distribution that can't be told"
    return SettingsError(
        f"distribution {of}: its entry point {point.name} = {point.value} ({GROUP}) can't be used: {why}. Correct it, "
        "or uninstall the distribution"
    )


def of_class(error: Any, code: Any, reason: Any = UNKNOWN, text: str | None = None) -> Catalogue:
    """A catalogue of one class of errors, with its subclasses. Raises InputError for what is none, for a code in no
    range, and for a reason that there is not."""
    if not (isinstance(error, type) and issubclass(error, BaseException)):
        raise InputError(f"{given.shown(error)} is no class of errors; write @app.classifies(…) above one")
    name = f"{error.__module__}.{error.__qualname__}"
    if not isinstance(code, ErrorCode):
        if type(code) is not int:
            raise InputError(
                f"{name}: its code {given.shown(code)} is none; give a number, as in @app.classifies(27001, …)"
            )
        code = ErrorCode(code, _shouted(error.__name__), text or _first_line(error))
    if not isinstance(reason, Reason):
        reason = reason_of(given.text(reason, "reason"))
    return Catalogue(name, (Entry(code, reason, types=frozenset({name})),))


def _shouted(name: str) -> str:
    """`LedgerClosed` as `LEDGER_CLOSED`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).upper()


def _first_line(error: type) -> str:
    lines = (error.__doc__ or "").strip().splitlines()
    return lines[0] if lines else f"a {error.__name__}"
