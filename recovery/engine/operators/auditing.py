"""The audit log as it is written: by every function with which an operator changes something.

An entry is written before anything is done, and its outcome after: one without an outcome was cut off, and nobody knows
how far it came. What was refused is written too.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recovery.engine.isolation import in_a_line
from recovery.engine.resources import Resources
from recovery.errors import InputError, StoreDenied
from recovery.limits import MAX_NUMBER, REASON_LENGTH
from recovery.records import AuditEntry, given
from recovery.records.ids import new_process_id
from recovery.store import roles
from recovery.wording import printable

DETAILS_LENGTH = 2000


@dataclass(slots=True)
class Outcome:
    """What came of it, to be said by whoever does it."""

    text: str = "done"
    operation: int | None = None


@contextmanager
def audited(
    resources: Resources,
    what: str,
    target: str = "",
    why: str = "",
    *,
    by: str | None = None,
    operation: int | None = None,
    **details: Any,
) -> Iterator[Outcome]:
    """Write down what is done in here. `details` are what was asked for, as JSON takes it."""
    told = {name: value for name, value in details.items() if value not in (None, "", (), {}, [])}
    entry = AuditEntry(
        id=new_process_id(),
        what=what,
        target=_plain(target, given.MAX_LENGTH),
        who=(by or who())[:NAME_LENGTH],
        why=_plain(why, REASON_LENGTH),
        origin=origin(),
        details=_details(told) if told else None,
        # A number that MongoDB can't have is of none; what was asked for is the target.
        operation=operation if operation is None or abs(operation) <= MAX_NUMBER else None,
    )
    try:
        resources.store.audit_log.begin(entry)
    except StoreDenied as error:
        why_so = f"what an operator changes is written to the audit log first, so it takes the role {roles.OPERATOR}"
        raise StoreDenied(f"{error}; {why_so}") from error
    outcome = Outcome()
    try:
        yield outcome
    except InputError as error:
        resources.store.audit_log.end(entry.id, f"refused: {in_a_line(error)}"[:REASON_LENGTH])
        raise
    except BaseException as error:
        said = in_a_line(error) if isinstance(error, Exception) else type(error).__name__
        resources.store.audit_log.end(entry.id, f"cut off: {said}"[:REASON_LENGTH])
        raise
    resources.store.audit_log.end(entry.id, outcome.text[:REASON_LENGTH], outcome.operation)


def _plain(text: Any, longest: int) -> str:
    """A name or a reason as it was given: who names what can't be a name is on record too."""
    plain = given.exact(text) if isinstance(text, str) else given.shown(text)
    return plain[:longest] if given.is_unicode(plain) else given.shown(plain)


def _details(told: dict[str, Any]) -> str:
    try:
        return json.dumps(told, default=given.shown, skipkeys=True)[:DETAILS_LENGTH]
    except (ValueError, RecursionError):  # it holds itself
        return given.shown(told)


def origin() -> str:
    """The program that asks and the machine that it runs on."""
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return printable(f"{program} (pid {os.getpid()}) on {socket.gethostname()}")[:NAME_LENGTH]


NAME_LENGTH = 200


def who() -> str:
    """Who asks, as far as this machine knows."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:NAME_LENGTH]


def reason_of(reason: Any, use: str) -> str:
    """A reason that was given, cut to what is kept of one. Raises InputError for none; `use` says what it is for."""
    plain = given.exact(reason) if isinstance(reason, str) else ""
    if not plain.strip() or not given.is_unicode(plain):
        raise InputError(f"reason={given.shown(reason)}: say in a few words why; it is {use}")
    return plain[:REASON_LENGTH]
