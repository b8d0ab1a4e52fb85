"""Who an operator is, and why he does what he does: as it is recorded with it."""

from __future__ import annotations

import getpass
import os
import socket
from typing import Any

from recovery.errors import InputError
from recovery.records import given

REASON_LENGTH = 500
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
