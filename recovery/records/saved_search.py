"""Searches under a name, `@NAME` in others: the SavedSearch record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recovery.errors import InputError
from recovery.records import given
from recovery.records.record import Record

SIGN = "@"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,49}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSearch(Record):
    """A search that somebody gave a name. `id` is that name.

    Each write raises `version` and names the one that it was decided from.
    """

    id: str
    text: str
    """In the language of `recovery find`. Relative times in it count from when it is used."""
    by: str = ""
    reason: str = ""
    at: datetime | None = None
    version: int = 0


def search_name(name: Any) -> str:
    """A name that a search can be saved under, with or without its `@`. Raises InputError."""
    plain = given.exact(name) if isinstance(name, str) else ""
    plain = plain.removeprefix(SIGN)
    if not _NAME.fullmatch(plain):
        wanted = "letters, digits, '_', '.' and '-', at most 50, a letter first"
        raise InputError(f"name {given.shown(name)}: the name of a search has {wanted}, as in stuck-orders")
    return plain
