"""Our messages are taken by a real worker, and what is made of one is Celery's own: compared field by field."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any

import pytest
import redis
from celery import Celery, signals
from celery.contrib.testing.worker import start_worker
from hypothesis import given
from hypothesis import strategies as st

from recovery.queue import Broker, MessageId, encode, parse_id, remake
from recovery.records.ids import child_task_id, new_pass, new_process_id, record_id
from recovery.settings import Settings
from recovery.store import Queued
from recovery.worker.celery_config import configuration
from tests.examples import examples

ACTOR = "add.up-2"
NOW = datetime(2026, 3, 1, 12, 0, 0, 123000, UTC)
MEANT_TO_DIFFER = {
    # Who sent it, and texts for people in Celery's own events, which nobody reads here.
    "headers.origin", "headers.argsrepr", "headers.kwargsrepr",
    # Of results, which are switched off on both sides.
    "headers.ignore_result", "properties.reply_to",
    # The message's own name; Celery's is random. Redis keeps no delivery mode.
    "properties.delivery_tag", "properties.delivery_mode",
    # It does not go through Redis again.
    "properties.body_encoding",
}  # fmt: skip


def queued(**changes: Any) -> Queued:
    key = record_id(new_process_id(), child_task_id("start", 0, 1))
    return Queued(**{"id": key, "actor": ACTOR, "pass_key": new_pass(), "queued_at": NOW, **changes})


def celery(settings: Settings) -> tuple[Celery, SimpleQueue[tuple[str, str]]]:
    """Celery as workers have it, with a task that notes what it is called with."""
    app, calls = Celery("test", set_as_current=False), SimpleQueue[tuple[str, str]]()
    app.conf.update(configuration(settings, [ACTOR]), worker_redirect_stdouts=False)

    @app.task(name=ACTOR, shared=False)  # type: ignore[untyped-decorator]
    def note(decision_id: str, pass_key: str) -> None:
        calls.put((decision_id, pass_key))

    return app, calls


def flat(message: dict[str, Any], path: str = "") -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in message.items():
        fields |= flat(value, f"{path}{key}.") if isinstance(value, dict) else {path + key: value}
    return fields


def body(message: dict[str, Any]) -> Any:
    text = message["body"]
    return json.loads(base64.b64decode(text) if message["properties"].get("body_encoding") == "base64" else text)


@pytest.mark.parametrize("first", [False, True])
def test_what_is_made_of_it_is_what_apply_async_sends(emptied: Settings, first: bool) -> None:
    one = queued(first=first)
    told = json.loads(encode(one))["headers"]
    ours = remake(told["task"], told["id"], [one.id, one.pass_key], {}, told["task"], told["id"])
    app, _ = celery(emptied)
    app.tasks[ACTOR].apply_async((one.id, one.pass_key), task_id=ours["headers"]["id"])
    with redis.Redis.from_url(emptied.broker_url) as server:
        (sent,) = server.lrange(ACTOR, 0, -1)
    theirs = json.loads(sent)
    assert body(ours) == body(theirs)
    our_fields, their_fields = flat(ours), flat(theirs)
    for field in (our_fields | their_fields).keys() - MEANT_TO_DIFFER - {"body"}:
        assert our_fields.get(field, "absent") == their_fields.get(field, "absent"), field
    assert all(type(our_fields[f]) is type(their_fields[f]) for f in our_fields.keys() & their_fields.keys())


@pytest.fixture
def our_logging() -> Iterator[None]:
    """Else a worker that is started in this process sets up logging for all tests after it."""

    def leave_it(**_: Any) -> None: ...

    signals.setup_logging.connect(leave_it)
    yield
    signals.setup_logging.disconnect(leave_it)


@pytest.mark.usefixtures("our_logging")
def test_a_real_worker_takes_it(emptied: Settings) -> None:
    app, calls = celery(emptied)
    batch = [queued() for _ in range(3)] + [queued(first=True)]
    assert Broker(emptied.broker_url).push(batch) == 4
    with start_worker(app, pool="solo", perform_ping_check=False, loglevel="ERROR"):
        taken = [calls.get(timeout=15) for _ in batch]
    assert taken == [(one.id, one.pass_key) for one in (batch[3], *batch[:3])]
    with redis.Redis.from_url(emptied.broker_url) as server:
        assert server.llen(ACTOR) == 0
        assert server.hlen("unacked") == 0


def test_it_is_small() -> None:
    """With the names of a task that somebody may have, and what waits of them by the million."""
    assert len(encode(queued())) < 500


def test_each_message_has_its_own_name() -> None:
    first, second = queued(), queued()
    messages = [json.loads(encode(one)) for one in (first, second, first, queued(id=first.id))]
    tags = [message["properties"]["delivery_tag"] for message in messages]
    assert tags[0] == tags[2] == messages[0]["headers"]["id"]
    assert len(set(tags)) == 3


@examples(30)
@given(
    st.uuids().map(lambda u: u.hex),
    st.integers(0, 1000),
    st.uuids().map(lambda u: u.hex),
    st.integers(1, 10**9),
)
def test_its_id_tells_what_it_is_for(process: str, place: int, pass_key: str, milliseconds: int) -> None:
    queued_at = NOW + timedelta(milliseconds=milliseconds)
    one = queued(id=record_id(process, child_task_id("t", 0, place)), pass_key=pass_key, queued_at=queued_at)
    message = json.loads(encode(one))
    assert parse_id(message["headers"]["id"]) == MessageId(one.id, pass_key, queued_at)
    assert body(message)[:2] == [[one.id, pass_key], {}]


def test_what_was_put_first_does_not_tell_how_far_the_line_has_got() -> None:
    one = queued(first=True)
    assert parse_id(json.loads(encode(one))["headers"]["id"]) == MessageId(one.id, one.pass_key, None)


OURS = f"{'f' * 32}/start:{'a' * 32}"


@pytest.mark.parametrize(
    "odd",
    [
        "", "f3b1c1de-93d0-4b2f-9d1b-0a6a3f2b7c11", "p/t:k:1", ":" * 100_000,
        f"{OURS}:", f"{OURS}:soon", f"{OURS}:-1", f"{OURS}:1:2", f"{OURS}:1.5", f"{OURS}:1_0", f" {OURS}:1",
        f"{OURS}:{'9' * 15}", f"{OURS}:{'9' * 5000}", f"{OURS}:\u0661", f"{OURS}:\u00b2", f"{OURS}:1\ud800",
        f"{OURS}:1\n", f"{OURS}:1".encode(), 5, None, True, 1.5, {}, {"$gt": ""}, [], ["a"],
    ],
)  # fmt: skip
def test_another_programs_id_tells_nothing(odd: object) -> None:
    assert parse_id(odd) is None


def test_no_date_is_too_far_off_to_be_read() -> None:
    told = parse_id(f"{OURS}:{'9' * 14}")
    assert told is not None and told.queued_at is not None and told.queued_at.year == 5138
