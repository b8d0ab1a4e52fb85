"""Texts that somebody may put into a queue, or broadcast to workers: each is damaged in one way, or asks for
something."""

from __future__ import annotations

import base64
import copy
import functools
import gzip
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

from recovery.queue import remake

ARGUMENT = "the-argument-of-a-stranger"
"""In each text: it must be in no log."""
Change = Callable[[dict[str, Any]], None]


def _at(*path: str, value: Any) -> Change:
    def change(message: dict[str, Any]) -> None:
        for key in path[:-1]:
            message = message[key]
        message[path[-1]] = value

    return change


def _without(*path: str) -> Change:
    def change(message: dict[str, Any]) -> None:
        for key in path[:-1]:
            message = message[key]
        del message[path[-1]]

    return change


def _body(value: Any) -> Change:
    return _at("body", value=encoded(value))


def encoded(value: Any) -> str:
    return base64.b64encode(json.dumps(value).encode()).decode()


SIGNATURE: dict[str, Any] = {
    "task": "recovery.sweep",
    "args": [ARGUMENT],
    "kwargs": {},
    "options": {},
    "subtask_type": None,
}
ANY = {"$gt": ""}
OTHERS: list[Any] = [None, True, 5, -1.5, 10**30, "", ARGUMENT, "\x1b[31m\u202e", [], [5], {}, ANY]
"""Values of other types, and texts of another form."""

# What makes Celery do something else, or end, in a message that is right but for this.
CHANGES: dict[str, Change] = {
    "no headers": _without("headers"),
    "no properties": _without("properties"),
    "no body": _without("body"),
    "no id": _without("headers", "id"),
    "no task": _without("headers", "task"),
    "no delivery tag": _without("properties", "delivery_tag"),
    "no delivery info": _without("properties", "delivery_info"),
    "no encoding": _without("properties", "body_encoding"),
    "unknown encoding": _at("properties", "body_encoding", value="rot13"),
    "encoding of another type": _at("properties", "body_encoding", value={}),
    "bad base64": _at("body", value="!!!"),
    "not JSON inside": _at("body", value=base64.b64encode(b"{").decode()),
    "empty body": _body([]),
    "body of two": _body([[], {}]),
    "body is a number": _body(5),
    "arguments no list": _body([5, {}, {}]),
    "named arguments no dict": _body([[], 5, {}]),
    "no arguments": _body([[], {}, {}]),
    "a third argument": _body([["a", "b", ARGUMENT], {}, {}]),
    "arguments that are a query": _body([[ANY, ANY], {}, {}]),
    "arguments of any type": _body([[None, {"a": [ARGUMENT]}], {}, {}]),
    "named arguments": _body([[], {"decision_id": ANY, "pass_key": ANY}, {}]),
    "callbacks": _body(
        [[], {}, {"callbacks": [SIGNATURE], "errbacks": [SIGNATURE], "chain": [SIGNATURE], "chord": SIGNATURE}]
    ),
    "callbacks no list": _body([[], {}, {"callbacks": 5, "errbacks": "x", "chain": {}, "chord": []}]),
    "a chord in the headers": _at("headers", "chord", value=SIGNATURE),
    "a group": _at("headers", "group", value="g"),
    "retries no number": _at("headers", "retries", value="x"),
    "a time limit of text": _at("headers", "timelimit", value="a"),
    "time limits of text": _at("headers", "timelimit", value=["a", "b"]),
    "a time limit of no time": _at("headers", "timelimit", value=[0, 0]),
    "eta junk": _at("headers", "eta", value="soon"),
    "eta a number": _at("headers", "eta", value=5),
    "eta far off": _at("headers", "eta", value="9999-12-31T23:59:59+00:00"),
    "expires junk": _at("headers", "expires", value="later"),
    "expires a list": _at("headers", "expires", value=[]),
    "results wanted": _at("headers", "ignore_result", value=False),
    "a shadow": _at("headers", "shadow", value=["x"]),
    "stamps": _at("headers", "stamped_headers", value=5),
    "an answer wanted": _at("properties", "reply_to", value="nobody"),
    "priority of text": _at("properties", "priority", value="high"),
    "another exchange": _at("properties", "delivery_info", value={"exchange": "celery.pidbox", "routing_key": 5}),
    "a tag that is a list": _at("properties", "delivery_tag", value=[1]),
    "a tag that is a dict": _at("properties", "delivery_tag", value={"a": 1}),
    "a tag that is a number": _at("properties", "delivery_tag", value=5),
    "content type pickle": _at("content-type", value="application/x-python-serialize"),
    "content type yaml": _at("content-type", value="application/x-yaml"),
    "content type of another type": _at("content-type", value={}),
    "content encoding unknown": _at("content-encoding", value="no-such-code"),
    "content encoding of another type": _at("content-encoding", value=5),
    "gzip": _at("headers", "compression", value="application/x-gzip"),
    "compression unknown": _at("headers", "compression", value="no-such"),
    "compression of another type": _at("headers", "compression", value=[5]),
    "another task": _at("headers", "task", value="recovery.sweep"),
    "Celery's own task": _at("headers", "task", value="celery.backend_cleanup"),
    "an unknown task": _at("headers", "task", value="no.such.task"),
    "an id of another form": _at("headers", "id", value="f3b1c1de-93d0-4b2f-9d1b-0a6a3f2b7c11"),
}  # fmt: skip


def bomb(good: str | bytes) -> str:
    """A message whose body is small, and unpacks to 200 MB."""
    message = json.loads(good)
    message["headers"]["compression"] = "application/x-gzip"
    message["body"] = _packed()
    return json.dumps(message)


@functools.cache
def _packed() -> str:
    return base64.b64encode(gzip.compress(b'["' + b"x" * 200_000_000 + b'"]', 6)).decode()


def of_celery(good: str | bytes) -> dict[str, Any]:
    """The same message with all that Celery itself sends, as earlier versions did."""
    ours = json.loads(good)
    told, tag = ours["headers"], ours["properties"]["delivery_tag"]
    message = remake(told["task"], told["id"], json.loads(ours["body"])[0], {}, told["task"], tag)
    properties = {**message["properties"], "body_encoding": "base64"}
    body = base64.b64encode(message["body"].encode()).decode()
    return {**message, "headers": {**message["headers"], **told}, "properties": properties, "body": body}


def damaged(good: str | bytes) -> Iterator[tuple[str, bytes]]:
    """(what is damaged, the text), made from the text of a message that is right."""
    message = of_celery(good)
    for name, change in CHANGES.items():
        changed = copy.deepcopy(message)
        change(changed)
        yield name, json.dumps(changed).encode()
    for path in (
        ("headers",),
        ("properties",),
        ("body",),
        ("headers", "id"),
        ("headers", "task"),
        ("properties", "delivery_info"),
    ):
        for value in OTHERS:
            changed = copy.deepcopy(message)
            _at(*path, value=value)(changed)
            yield f"{'.'.join(path)} = {value!r}", json.dumps(changed).encode()
    yield from RAW.items()
    yield "cut off", json.dumps(message).encode()[:-40]
    yield "in UTF-16", json.dumps(message).encode("utf-16")
    yield "pickled", pickle.dumps(message)
    yield "Celery's first protocol", json.dumps({**message, "headers": {}, "body": encoded(
        {"task": message["headers"]["task"], "id": "1", "args": [ARGUMENT], "kwargs": {}, "callbacks": [SIGNATURE]}
    )}).encode()  # fmt: skip


RAW: dict[str, bytes] = {
    "nothing": b"",
    "a blank": b" ",
    "not JSON": b"{",
    "a word": ARGUMENT.encode(),
    "a number": b"5",
    "a text": b'"x"',
    "null": b"null",
    "a list": b"[]",
    "an empty dict": b"{}",
    "NaN": b"NaN",
    "a number of 6,000 digits": b"9" * 6_000,
    "no UTF-8": b"\xff\xfe\x00",
    "a lone surrogate": b'{"headers": {"id": "\\ud800", "task": "\\ud800"}, "properties": {}}',
    "deep lists": b"[" * 8_000,
    "deep dicts": b'{"a":' * 2_000 + b"1" + b"}" * 2_000,
    "deep and closed": b"[" * 8_000 + b"]" * 8_000,
    "1 MB": b'"' + b"x" * 1_000_000 + b'"',
    "control characters": b"\x00\x1b[31m\x07\r\n",
}


COMMANDS: dict[str, Any] = {
    "shutdown": {}, "pool_restart": {}, "pool_grow": {"n": 5}, "pool_shrink": {"n": 5}, "autoscale": {"max": 9},
    "cancel_consumer": {"queue": "slow"}, "add_consumer": {"queue": ARGUMENT},
    "rate_limit": {"task_name": "slow", "rate_limit": "1/h"}, "time_limit": {"task_name": "slow", "hard": 0.001},
    "revoke": {"task_id": "x", "terminate": True}, "terminate": {"task_id": "x"},
    "revoke_by_stamped_headers": {"headers": {"a": "b"}}, "conf": {}, "stats": {}, "active": {}, "memdump": {},
    "enable_events": {}, "election": {"id": 1, "topic": "x", "action": 5}, "hello": {"from_node": "x"},
    ARGUMENT: {}, "": {},
}  # fmt: skip


def commands() -> Iterator[tuple[str, bytes]]:
    """(what it asks for, the text) of broadcasts that no worker obeys."""
    for method, arguments in COMMANDS.items():
        yield method, command(method=method, arguments=arguments)
    for value in OTHERS:
        yield f"method {value!r}", command(method=value)
        yield f"destination {value!r}", command(method="ping", destination=value or 5)
        yield f"reply_to {value!r}", command(method="ping", reply_to=value or 5, ticket="t")
        yield f"ticket {value!r}", command(method="ping", reply_to={"exchange": "x", "routing_key": "y"}, ticket=value)
        yield f"clock {value!r}", command({"clock": value}, method="settings")
    yield "a pattern", command(method="ping", pattern="(a+)+$", matcher="pcre")
    yield "an unknown matcher", command(method="ping", pattern="x", matcher="no-such")
    yield "another key", command(method="shutdown", state={}, arguments=5)
    yield from RAW.items()


def command(headers: dict[str, Any] | None = None, /, **body: Any) -> bytes:
    """What is broadcast for a command."""
    return json.dumps({
        "body": encoded({"arguments": {}, "destination": None, "pattern": None, "matcher": None, **body}),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"clock": 1, "expires": 0, **(headers or {})},
        "properties": {"delivery_tag": "t", "body_encoding": "base64", "delivery_info": {"exchange": "celery.pidbox"}},
    }).encode()  # fmt: skip
