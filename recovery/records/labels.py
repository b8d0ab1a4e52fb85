"""Labels that users give their processes, `customer=acme`: what they are searched by.

They are kept as texts `NAME=VALUE`, so that one index serves all names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from recovery.errors import InputError
from recovery.records import given

MOST = 20
LONGEST = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,49}")


def encode_labels(labels: Any) -> tuple[str, ...]:
    """Labels as they are kept, in order. Raises InputError for what can be none."""
    if not isinstance(labels, Mapping):
        raise InputError(f"labels={given.shown(labels)}: must be a mapping, as {{'customer': 'acme'}}")
    if len(labels) > MOST:
        raise InputError(f"labels: {len(labels)} of them; a process has at most {MOST}")
    found = []
    for name, value in labels.items():
        if not isinstance(name, str) or not _NAME.fullmatch(given.exact(name)):
            wanted = "letters, digits, '_' and '-', at most 50, a letter first"
            raise InputError(f"label {given.shown(name)}: a name has {wanted}")
        found.append(f"{given.exact(name)}={given.text(value, f'label {given.exact(name)}', longest=LONGEST)}")
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
