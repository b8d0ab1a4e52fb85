"""What a server tells of itself, and a queue that is cut."""

from __future__ import annotations

from datetime import timedelta

import redis

from recovery.queue import Broker
from recovery.settings import Settings


def test_condition(emptied: Settings) -> None:
    now = Broker(emptied.broker_url).condition()
    assert (now.product in ("Redis", "Valkey"), now.is_primary, now.appends, now.saves) == (True, True, True, False)
    assert (now.writes_well, now.policy, now.limit) == (True, "noeviction", 0)
    assert now.memory > 0
    assert abs(now.ahead) < timedelta(seconds=1)
    assert timedelta() < now.uncertain < timedelta(seconds=1)


def test_only_the_youngest_are_left(emptied: Settings) -> None:
    broker = Broker(emptied.broker_url)
    with redis.Redis.from_url(emptied.broker_url) as server:
        server.lpush("some", *range(5))
        broker.cut("some", 2)
        assert [int(text) for text in server.lrange("some", 0, -1)] == [4, 3]
        broker.cut("some", 2)
        broker.cut("none", 2)
        assert (server.llen("some"), server.exists("none")) == (2, 0)
