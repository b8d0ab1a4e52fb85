"""Checks and converts labels of processes and names of saved searches, and defines the SavedSearch record.

A label, such as `customer=acme`, is stored as the text `NAME=VALUE`, so that one index serves all names.
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
    """Return labels as they are stored: sorted texts `NAME=VALUE`.

    Raises:
        InputError: The labels are not a mapping of names to texts, or are too many or too long.
    """
    if not isinstance(labels, Mapping):
        raise InputError(f"labels={given.shown(labels)}: must be a mapping, as {{'customer': 'acme'}}")
    if len(labels) > MAX_LABELS:
        raise InputError(f"labels: {len(labels)} of them; a process has at most {MAX_LABELS}")
    encoded = []
    for name, value in labels.items():
        if not isinstance(name, str) or not _LABEL_NAME.fullmatch(given.exact(name)):
            wanted = "letters, digits, '_' and '-', at most 50, a letter first"
            raise InputError(f"label {given.shown(name)}: a name has {wanted}")
        encoded.append(
            f"{given.exact(name)}={given.text(value, f'label {given.exact(name)}', longest=MAX_LABEL_LENGTH)}"
        )
    return tuple(sorted(encoded))


def parse_labels(given_: Iterable[str]) -> dict[str, str]:
    """Return {name: value} of labels that a user typed as `NAME=VALUE`.

    Raises:
        InputError: A text has no `=`, or a name is given twice.
    """
    labels: dict[str, str] = {}
    for text in given_:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"label {given.shown(text)}: give it as NAME=VALUE, as in customer=acme")
        if name in labels:
            raise InputError(f"label {name}: is given twice, {given.shown(labels[name])} and {given.shown(value)}")
        labels[name] = value
    return labels


def decode_labels(labels: Iterable[str]) -> dict[str, str]:
    """Return {name: value} of stored labels."""
    return {name: value for name, _, value in (label.partition("=") for label in labels)}


def label_text(name: str, value: str) -> str:
    """Return the text of a label as it is stored."""
    return f"{name}={value}"


SIGN = "@"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedSearch(Record):
    """A search that is saved under a name, which is `id`.

    Each write increments `version` and succeeds only if the stored version is the one that was read.
    """

    id: str
    text: str
    """The search in the language of `recovery find`. Its relative times count from when it is used."""
    by: str = ""
    reason: str = ""
    at: datetime | None = None
    version: int = 0


def search_name(name: Any) -> str:
    """Return the name of a saved search without a leading `@`. Raises InputError if the name is invalid."""
    return saved_name(name, "a search", "stuck-orders")


def saved_name(name: Any, what: str, example: str) -> str:
    """Return a name for saving without a leading `@`.

    Args:
        name: The name to check.
        what: The kind of saved object in errors, for example `a search`.
        example: A valid name for errors.

    Raises:
        InputError: The name is invalid.
    """
    plain = given.exact(name) if isinstance(name, str) else ""
    plain = plain.removeprefix(SIGN)
    if not re.fullmatch(SHORT_NAME, plain):
        wanted = "letters, digits, '_', '.' and '-', at most 50, a letter first"
        raise InputError(f"name {given.shown(name)}: the name of {what} has {wanted}, as in {example}")
    return plain
