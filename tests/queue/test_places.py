"""Who scans just now is told by Redis's clock, and who died is forgotten."""

from __future__ import annotations

import redis

from recovery.queue.coordination import PLACE_LIFETIME, SCANNING_KEY, Places
from recovery.settings import Settings


def test_places_are_by_name_and_left(emptied: Settings) -> None:
    places = Places(emptied.broker_url)
    assert places.take("b") == (0, 1)
    assert places.take("c") == (1, 2)
    assert places.take("a") == (0, 3)
    assert places.take("c") == (2, 3)
    places.leave("a")
    places.leave("nobody")
    assert places.take("b") == (0, 2)


def test_who_died_counts_no_more_after_a_while(emptied: Settings) -> None:
    places, server = Places(emptied.broker_url), redis.Redis.from_url(emptied.broker_url)
    places.take("a")
    now = server.time()[0]
    server.zadd(
        SCANNING_KEY,
        {"died": now - PLACE_LIFETIME - 1, "by a clock that was set back": now + 2 * PLACE_LIFETIME, b"\xff": now},
    )
    assert places.take("b") == (1, 3)
    assert 0 < server.pttl(SCANNING_KEY) <= 10 * PLACE_LIFETIME * 1000, "what nobody takes out is gone in the end"
