"""Write the audit log: an entry for each command with which an operator changes something.

The entry is written before the change, and its outcome after it. An entry without an outcome was cut off, and nobody
knows how much was changed. Commands that were refused have an entry, too.
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
"""Maximum characters of the details in an entry."""


@dataclass(slots=True)
class Outcome:
    """The outcome of a command. The command sets it."""

    text: str = "done"
    """What the command did, in a few words."""
    operation: int | None = None
    """The number of the operation that the command ordered."""


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
    """Record the command in the block in the audit log.

    Args:
        resources: The connections.
        what: The command, such as `process abort`.
        target: What the command changes, such as a process id.
        why: The operator's reason.
        by: Who gives the command. The default is `who()`.
        operation: The number of the operation that the command is about.
        **details: The arguments of the command, as JSON values. Empty ones are left out.

    Yields:
        The outcome, which the block sets.

    Raises:
        StoreDenied: The user of MongoDB may not write the audit log. The block does not run.
    """
    arguments = {name: value for name, value in details.items() if value not in (None, "", (), {}, [])}
    entry = AuditEntry(
        id=new_process_id(),
        what=what,
        target=_plain(target, given.MAX_LENGTH),
        who=(by or who())[:NAME_LENGTH],
        why=_plain(why, REASON_LENGTH),
        origin=origin(),
        details=_details(arguments) if arguments else None,
        # No operation has a number that MongoDB cannot store. The target has the number as it was given.
        operation=operation if operation is None or abs(operation) <= MAX_NUMBER else None,
    )
    try:
        resources.store.audit_log.begin(entry)
    except StoreDenied as error:
        advice = f"each change by an operator is first recorded in the audit log, which takes the role {roles.OPERATOR}"
        raise StoreDenied(f"{error}; {advice}") from error
    outcome = Outcome()
    try:
        yield outcome
    except InputError as error:
        resources.store.audit_log.end(entry.id, f"refused: {in_a_line(error)}"[:REASON_LENGTH])
        raise
    except BaseException as error:
        message = in_a_line(error) if isinstance(error, Exception) else type(error).__name__
        resources.store.audit_log.end(entry.id, f"cut off: {message}"[:REASON_LENGTH])
        raise
    resources.store.audit_log.end(entry.id, outcome.text[:REASON_LENGTH], outcome.operation)


def _plain(text: Any, longest: int) -> str:
    """Return a name or a reason as it was given. Values that are not allowed are recorded, too."""
    plain = given.exact(text) if isinstance(text, str) else given.shown(text)
    return plain[:longest] if given.is_unicode(plain) else given.shown(plain)


def _details(details: dict[str, Any]) -> str:
    try:
        return json.dumps(details, default=given.shown, skipkeys=True)[:DETAILS_LENGTH]
    except (ValueError, RecursionError):  # a value contains itself
        return given.shown(details)


def origin() -> str:
    """Return the program that gives the command, and the machine that it runs on."""
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    return printable(f"{program} (pid {os.getpid()}) on {socket.gethostname()}")[:NAME_LENGTH]


NAME_LENGTH = 200
"""Maximum characters of who gives a command, and of its origin."""


def who() -> str:
    """Return who gives the command, as `user@machine`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user of a container may have no name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:NAME_LENGTH]


def reason_of(reason: Any, use: str) -> str:
    """Return an operator's reason, cut to REASON_LENGTH characters. Raises InputError if it is empty; `use` says in the
    message what the reason is used for."""
    plain = given.exact(reason) if isinstance(reason, str) else ""
    if not plain.strip() or not given.is_unicode(plain):
        raise InputError(f"reason={given.shown(reason)}: say in a few words why; it is {use}")
    return plain[:REASON_LENGTH]
