"""Texts made from good messages by chance: values of a JSON document replaced, moved, taken out or put in, and bytes
changed; or a document that has nothing of a message."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from tests.queue.shapes import ANY, ARGUMENT, OTHERS, RAW, SIGNATURE, encoded

KEYS = [
    *("headers", "properties", "body", "content-type", "content-encoding", "id", "task", "args", "kwargs", "root_id"),
    *("delivery_tag", "delivery_info", "body_encoding", "exchange", "routing_key", "compression", "eta", "expires"),
    *(
        "timelimit",
        "retries",
        "callbacks",
        "errbacks",
        "chord",
        "chain",
        "group",
        "reply_to",
        "correlation_id",
        "shadow",
    ),
    *(
        "priority",
        "stamps",
        "signature",
        "method",
        "arguments",
        "destination",
        "pattern",
        "matcher",
        "ticket",
        "repair",
    ),
]
VALUES = [
    *OTHERS,
    ANY,
    SIGNATURE,
    ARGUMENT,
    "application/x-gzip",
    "base64",
    "recovery.sweep",
    "celery.chord",
    "shutdown",
]
PARTS = [
    b"{",
    b"}",
    b"[",
    b"]",
    b'"',
    b"\\",
    b"\x00",
    b"\xff",
    b"\\ud800",
    b":",
    b",",
    b"9" * 50,
    b"e999",
    b"NaN",
    b"\x1b[",
]


def document(chance: random.Random, depth: int = 0) -> Any:
    """Any value of JSON."""
    kind = chance.random()
    if depth > 4 or kind < 0.5:
        return copy.deepcopy(chance.choice(VALUES))
    count = chance.randrange(4)
    if kind < 0.75:
        return [document(chance, depth + 1) for _ in range(count)]
    return {chance.choice(KEYS): document(chance, depth + 1) for _ in range(count)}


def mutated(chance: random.Random, good: bytes) -> bytes:
    """A text that was good, or never."""
    if chance.random() < 0.02:
        return chance.choice(list(RAW.values()))
    message = json.loads(good) if chance.random() < 0.9 else document(chance)
    for _ in range(chance.randrange(4)):
        chance.choice(CHANGES)(chance, message)
    text = json.dumps(message).encode()
    while chance.random() < 0.3:
        text = _bytes_changed(chance, text)
    return text


def _places(value: Any) -> list[tuple[Any, Any]]:
    """All (dict or list, key) in a document."""
    found = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += [(value, key), *_places(inner)]
    return found


def _replace(chance: random.Random, message: Any) -> None:
    if places := _places(message):
        holder, key = chance.choice(places)
        holder[key] = document(chance)


def _remove(chance: random.Random, message: Any) -> None:
    if places := _places(message):
        holder, key = chance.choice(places)
        del holder[key]


def _add(chance: random.Random, message: Any) -> None:
    holders = [message, *(holder[key] for holder, key in _places(message))]
    holder = chance.choice(holders)
    if isinstance(holder, dict):
        holder[chance.choice(KEYS)] = document(chance)
    elif isinstance(holder, list):
        holder.insert(chance.randrange(len(holder) + 1), document(chance))


def _swap(chance: random.Random, message: Any) -> None:
    if places := _places(message):
        (one, first), (other, second) = chance.choice(places), chance.choice(places)
        one[first], other[second] = copy.deepcopy(other[second]), copy.deepcopy(one[first])


def _new_body(chance: random.Random, message: Any) -> None:
    if isinstance(message, dict):
        message["body"] = encoded(document(chance))


CHANGES: list[Callable[[random.Random, Any], None]] = [_replace, _replace, _remove, _add, _swap, _new_body]


def _bytes_changed(chance: random.Random, text: bytes) -> bytes:
    at = chance.randrange(len(text) + 1)
    upto = min(len(text), at + chance.randrange(20))
    return text[:at] + chance.choice(PARTS) * chance.randrange(3) + text[upto:]
