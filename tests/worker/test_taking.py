"""What is taken from Redis and not yet done is kept in memory alone, and put back in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer, Queue

from recovery import log_lines as seldom
from recovery.queue import encode
from recovery.queue.coordination import KEPT_KEY
from recovery.queue.message import UNSIGNED
from recovery.queue.untrusted import ASIDE
from recovery.settings import Settings
from recovery.worker.messages.intake import MessageIntake
from recovery.worker.messages.transport import Channel, Transport
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.queue.test_message import ACTOR, queued


@pytest.fixture
def server(emptied: Settings) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(emptied.broker_url) as client:
        yield client


@pytest.fixture
def taken(emptied: Settings, server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Three of five messages of which the middle one is none of ours; on an open connection."""
    monkeypatch.setattr(Channel, "intake", MessageIntake([ACTOR], [], UNSIGNED, sweeps=False))
    server.lpush(ACTOR, *texts(), "another")
    got: list[Any] = []
    with Connection(emptied.broker_url, transport=Transport) as connection:
        channel = connection.default_channel
        channel.basic_qos(0, 3, False)
        with Consumer(channel, [Queue(ACTOR)], on_message=got.append):
            while len(got) < 3:
                connection.drain_events(timeout=5)
            assert server.llen(ACTOR) == 1
            yield got


MADE = [encode(queued()) for _ in range(3)]


def texts() -> list[str]:
    return [MADE[0], "none of ours", MADE[1], MADE[2]]


def test_nothing_of_it_stands_in_redis(taken: list[Any], server: redis.Redis) -> None:
    assert [message._raw["text"].decode() for message in taken] == MADE
    assert found(server).keys() == {ACTOR}


def test_what_is_not_acknowledged_at_the_end_is_next_again(taken: list[Any], server: redis.Redis) -> None:
    taken[1].ack()
    taken[0].channel.close()
    assert [text.decode() for text in server.lrange(ACTOR, 0, -1)] == ["another", MADE[2], MADE[0]]


@pytest.fixture
def channel(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    """Of a worker that consumes the actor's queue."""
    monkeypatch.setattr(Channel, "intake", MessageIntake([ACTOR], [], UNSIGNED, sweeps=False))
    with Connection(emptied.broker_url, transport=Transport) as connection:
        yield connection.default_channel


def found(server: redis.Redis) -> dict[str, str]:
    ours = ("_kombu", KEPT_KEY)
    keys = {key.decode(): server.type(key).decode() for key in server.scan_iter()}
    return {key: kind for key, kind in keys.items() if not key.startswith(ours)}


@pytest.mark.parametrize("key", [ACTOR, f"{ACTOR}\x06\x163"])
def test_what_stands_in_the_place_of_a_queue_is_set_aside(
    channel: Channel, server: redis.Redis, caplog: pytest.LogCaptureFixture, key: str
) -> None:
    """It is somebody's data."""
    server.hset(key, "theirs", "kept")
    server.set("another", "untouched")
    assert [channel._size(ACTOR) for _ in range(2)] == [0, 0]
    (aside,) = found(server).keys() - {"another"}
    assert aside.startswith(f"{ACTOR}.{ASIDE}.")
    assert server.hgetall(aside) == {b"theirs": b"kept"}
    (said,) = caplog.messages
    assert said.startswith(f"{ACTOR} in Redis held a hash that is none of ours, and was renamed to {aside}: ")
    server.set(key, "again")
    channel._size(ACTOR)
    assert sorted(found(server).values()) == ["hash", "string", "string"], "each has a name of its own"


def test_so_is_what_stands_in_the_place_of_a_table(channel: Channel, server: redis.Redis) -> None:
    server.set("_kombu.binding.celery.pidbox", "theirs")
    channel._queue_bind("celery.pidbox", "", "", "a queue")
    (aside,) = server.scan_iter(f"*.{ASIDE}.*")
    assert server.get(aside) == b"theirs"
    assert server.type("_kombu.binding.celery.pidbox") == b"set"


@pytest.mark.parametrize("table", ["_kombu.binding.slow", "_kombu.binding_permanent.slow"])
def test_so_is_a_table_of_the_type_that_another_table_has(channel: Channel, server: redis.Redis, table: str) -> None:
    """Else a worker that starts is refused, and connects again, for ever."""
    server.zadd(table, {"theirs": 1.0})
    channel._queue_bind("slow", "", "", "slow")
    (aside,) = server.scan_iter(f"*.{ASIDE}.*")
    assert (server.type(aside), server.type(table)) == (b"zset", b"set")


def test_a_queue_that_took_its_place_just_now_stays(
    channel: Channel, server: redis.Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another worker set it aside, and a message was pushed, after this one looked and before it renames."""
    server.set(ACTOR, "theirs")
    real = redis.client.Pipeline.multi

    def late(pipeline: Any) -> None:
        server.delete(ACTOR)
        server.lpush(ACTOR, "a message")
        real(pipeline)

    monkeypatch.setattr(redis.client.Pipeline, "multi", late)
    assert channel._size(ACTOR) == 0
    assert (found(server), server.lrange(ACTOR, 0, -1)) == ({ACTOR: "list"}, [b"a message"])
    assert caplog.messages == []


def test_what_is_given_back_is_the_last(taken: list[Any], server: redis.Redis) -> None:
    taken[0].reject(requeue=True)
    assert [text.decode() for text in server.lrange(ACTOR, 0, -1)] == [MADE[0], "another"]
    taken[1].reject()
    assert server.llen(ACTOR) == 2


def test_whatever_others_put_into_redis_is_a_line_of_its_kind_a_second(
    channel: Channel, server: redis.Redis, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts, what stands in the place of queues and tables, and where answers can't be put."""
    monkeypatch.setattr(seldom, "EVERY", 60.0)
    assert channel.intake is not None
    answers = "00000000-0000-0000-0000-000000000000.reply.celery.pidbox"
    server.set(answers, "theirs")
    for _ in range(20):
        channel._put(answers, {"body": "an answer", "properties": {}})
        server.set(ACTOR, "theirs")
        assert channel._size(ACTOR) == 0
        server.set("_kombu.binding.celery.pidbox", "theirs")
        channel._queue_bind("celery.pidbox", "", "", "a queue")
        assert channel.intake.take(ACTOR, b"theirs") is channel.intake.command(b"theirs") is None
    assert len(caplog.messages) == 3
    assert len(list(server.scan_iter(f"*.{ASIDE}.*"))) == 40


def test_a_table_that_somebody_broke_is_no_stack_in_the_log_every_second(
    channel: Channel, server: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Celery's own queue of remote control expires, and kombu writes down once a second that it is still there."""
    channel.queue_declare("control", arguments={"x-expires": 10_000})
    channel.exchange_declare("celery.pidbox", "fanout")
    channel.queue_bind("control", "celery.pidbox", "")
    channel.basic_consume("control", True, lambda _: None, "a tag")
    server.set("_kombu.binding.celery.pidbox", "theirs")
    server.set("_kombu.binding_deadlines", "theirs")
    channel.connection.cycle._channels.add(channel)
    channel.connection.cycle.maybe_refresh_binding_expiry()
    assert caplog.messages == []


def test_what_is_given_back_to_a_queue_in_whose_place_something_stands(taken: list[Any], server: redis.Redis) -> None:
    """Raised, it would end the worker's connection."""
    server.delete(ACTOR)
    server.set(ACTOR, "theirs")
    taken[0].reject(requeue=True)
    assert [text.decode() for text in server.lrange(ACTOR, 0, -1)] == [MADE[0]]
    (aside,) = server.scan_iter(f"{ACTOR}.{ASIDE}.*")
    assert server.get(aside) == b"theirs"
