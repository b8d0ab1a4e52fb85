"""What users name in order to search by it: labels of processes, and saved searches.

A label, such as `customer=acme`, is kept as the text `NAME=VALUE`, so that one index serves all names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from recovery.errors import InputError
from recovery.limits import SHORT_NAME
from recovery.records import given
from recovery.records.record import Record

MAX_LABELS = 20
MAX_LABEL_LENGTH = 200
_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,49}")


def encode_labels(labels: Any) -> tuple[str, ...]:
    """Labels as they are kept, in order. Raises InputError for what can be none."""
    if not isinstance(labels, Mapping):
        raise InputError(f"labels={given.shown(labels)}: must be a mapping, as {{'customer': 'acme'}}")
    if len(labels) > MAX_LABELS:
        raise InputError(f"labels: {len(labels)} of them; a process has at most {MAX_LABELS}")
    found = []
    for name, value in labels.items():
        if not isinstance(name, str) or not _LABEL_NAME.fullmatch(given.exact(name)):
            wanted = "letters, digits, '_' and '-', at most 50, a letter first"
            raise InputError(f"label {given.shown(name)}: a name has {wanted}")
        found.append(f"{given.exact(name)}={given.text(value, f'label {given.exact(name)}', longest=MAX_LABEL_LENGTH)}")
    return tuple(sorted(found))


def parse_labels(given_: Iterable[str]) -> dict[str, str]:
    """Labels as they are typed, `NAME=VALUE` each. Raises InputError."""
    found: dict[str, str] = {}
    for text in given_:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"label {given.shown(text)}: give it as NAME=VALUE, as in customer=acme")
        if name in found:
            raise InputError(f"label {name}: is given twice, {given.shown(found[name])} and {given.shown(value)}")
        found[name] = value
    return found


def decode_labels(labels: Iterable[str]) -> dict[str, str]:
    """{name: value} of labels as they are kept."""
    return {name: value for name, _, value in (label.partition("=") for label in labels)}


def label_text(name: str, value: str) -> str:
    """A label as it is kept."""
    return f"{name}={value}"


SIGN = "@"


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
    return saved_name(name, "a search", "stuck-orders")


def saved_name(name: Any, what: str, example: str) -> str:
    """A name that something can be saved under, with or without its `@`. Raises InputError."""
    plain = given.exact(name) if isinstance(name, str) else ""
    plain = plain.removeprefix(SIGN)
    if not re.fullmatch(SHORT_NAME, plain):
        wanted = "letters, digits, '_', '.' and '-', at most 50, a letter first"
        raise InputError(f"name {given.shown(name)}: the name of {what} has {wanted}, as in {example}")
    return plain
