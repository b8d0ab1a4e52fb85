"""What is taken from Redis and not yet done is kept in memory alone, and put back in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import redis
from kombu import Connection, Consumer, Queue

from recovery.queue import encode
from recovery.queue.signing import UNSIGNED
from recovery.settings import Settings
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.queue.test_message import ACTOR, queued
from workers.intake import Intake
from workers.transport import Channel, Transport


@pytest.fixture
def server(emptied: Settings) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(emptied.broker_url) as client:
        yield client


@pytest.fixture
def taken(emptied: Settings, server: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Three of five messages of which the middle one is none of ours; on an open connection."""
    monkeypatch.setattr(Channel, "intake", Intake([ACTOR], [], UNSIGNED, sweeps=False))
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
    assert [key for key in server.scan_iter() if not key.startswith(b"_kombu")] == [ACTOR.encode()]


def test_what_is_not_acknowledged_at_the_end_is_next_again(taken: list[Any], server: redis.Redis) -> None:
    taken[1].ack()
    taken[0].channel.close()
    assert [text.decode() for text in server.lrange(ACTOR, 0, -1)] == ["another", MADE[2], MADE[0]]


def test_what_is_given_back_is_the_last(taken: list[Any], server: redis.Redis) -> None:
    taken[0].reject(requeue=True)
    assert [text.decode() for text in server.lrange(ACTOR, 0, -1)] == [MADE[0], "another"]
    taken[1].reject()
    assert server.llen(ACTOR) == 2
