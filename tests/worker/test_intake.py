"""What a worker makes of what Celery's own tools and our commands send; and how much it says of what it refuses."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from celery import Celery

from recovery import log_lines as seldom
from recovery import metrics
from recovery.queue import SETTINGS_CHANGED
from recovery.queue.message import UNSIGNED
from recovery.settings import Settings
from recovery.worker.control import COMMANDS
from recovery.worker.messages import intake as intakes
from recovery.worker.messages.intake import MessageIntake
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting


@pytest.fixture
def intake() -> MessageIntake:
    return MessageIntake(["order"], COMMANDS, UNSIGNED, sweeps=False)


@pytest.fixture
def heard(emptied: Settings) -> Iterator[Any]:
    """What is broadcast to workers, one after the other."""
    with redis.Redis.from_url(emptied.broker_url) as client, client.pubsub() as channel:
        channel.psubscribe("*.celery.pidbox")
        yield lambda: next(one["data"] for one in channel.listen() if one["type"] == "pmessage")


@pytest.mark.parametrize("reply", [True, False])
@pytest.mark.parametrize("destination", [None, ["one@host", "two@host"]])
def test_a_ping_keeps_whom_it_is_for_and_where_the_answer_goes(
    intake: MessageIntake, heard: Any, emptied: Settings, destination: list[str] | None, reply: bool
) -> None:
    app = Celery(broker=emptied.broker_url, set_as_current=False)
    app.control.broadcast("ping", destination=destination, reply=reply, timeout=0.05)
    text = heard()
    sent = intakes.untrusted.decode_body(json.loads(text))
    made = intake.command(text)
    assert made is not None
    wanted = {"method": "ping", "arguments": {}, "destination": destination}
    if reply:
        wanted |= {"reply_to": sent["reply_to"], "ticket": sent["ticket"]}
    assert json.loads(made["body"]) == {name: value for name, value in wanted.items() if value is not None}


def test_the_word_of_new_settings_is_taken(intake: MessageIntake, heard: Any, emptied: Settings) -> None:
    Celery(broker=emptied.broker_url, set_as_current=False).control.broadcast(SETTINGS_CHANGED)
    made = intake.command(heard())
    assert made is not None
    assert json.loads(made["body"])["method"] == SETTINGS_CHANGED


def test_a_million_texts_do_not_fill_a_log(
    intake: MessageIntake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = metrics.REFUSED.labels("malformed")._value.get()
    clock = SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(seldom, "time", clock)
    with caplog.at_level(logging.WARNING):
        for _ in range(5_001):
            assert intake.take("order", b"{") is None
        clock.now += 2
        assert intake.command(b"[]") is None
    assert [record.getMessage() for record in caplog.records] == [
        "a message in order is none of ours and is discarded: malformed",
        "a message in control is none of ours and is discarded: malformed, and 5,000 more since the last line",
    ]
    assert metrics.REFUSED.labels("malformed")._value.get() - counted == 5_002
