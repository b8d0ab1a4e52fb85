"""Without the key nobody makes a message that is taken, nor changes one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from celery import Celery, signals

from recovery.queue import Broker, Signer, encode, signer, untrusted
from recovery.queue.message import NUDGE, SPARK_QUEUE, SWEEP, UNSIGNED
from recovery.queue.untrusted import MessageRefusal, MessageRefused
from recovery.settings import Settings, load
from recovery.worker.beat import sign
from recovery.worker.celery_config import configuration
from tests.queue.shapes import OTHERS
from tests.queue.test_message import ACTOR, flat, queued

OLD, NEW = "o" * 32, "n" * 32
KEYED = Signer([NEW])
GOOD = queued()
TEXT = encode(GOOD, KEYED)


def is_taken(text: str, by: Signer, actor: str = ACTOR) -> bool:
    try:
        untrusted.attempt(text.encode(), actor, by)
    except MessageRefused as refused:
        assert refused.reason is MessageRefusal.SIGNATURE
        return False
    return True


@pytest.mark.parametrize(
    ("sends", "takes", "taken"),
    [
        # While a key is introduced, and while it is changed, each state meets the next.
        ([], [], True),
        ([NEW], [], True),
        ([], [NEW], False),
        ([OLD], [OLD, NEW], True),
        ([OLD, NEW], [NEW, OLD], True),
        ([NEW, OLD], [OLD, NEW], True),
        ([NEW], [NEW, OLD], True),
        ([OLD], [NEW], False),
    ],
)
def test_who_takes_whose_messages(sends: list[str], takes: list[str], taken: bool) -> None:
    text = encode(GOOD, Signer(sends))
    assert is_taken(text, Signer(takes)) is taken
    assert is_taken(text, Signer(takes, accept_unsigned=True)) is (taken or not sends)


def test_a_signature_is_one_header_more() -> None:
    signed, unsigned = (flat(json.loads(text)) for text in (TEXT, encode(GOOD)))
    assert signed.keys() - unsigned.keys() == {"headers.signature"}
    assert signed == unsigned | {"headers.signature": signed["headers.signature"]}
    assert NEW not in TEXT


OTHER = queued()
FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "another task": lambda m: m["headers"].update(id=m["headers"]["id"].replace(GOOD.id, OTHER.id)),
    "another pass": lambda m: m["headers"].update(id=m["headers"]["id"].replace(GOOD.pass_key, OTHER.pass_key)),
    "another time": lambda m: m["headers"].update(id=m["headers"]["id"] + "0"),
    "no time": lambda m: m["headers"].update(id=m["headers"]["id"].rpartition(":")[0] + ":0"),
    "no signature": lambda m: m["headers"].pop("signature"),
    "cut off": lambda m: m["headers"].update(signature=m["headers"]["signature"][:-1]),
    "in capitals": lambda m: m["headers"].update(signature=m["headers"]["signature"].upper()),
}


@pytest.mark.parametrize("what", FORGED)
def test_what_is_forged_is_refused(what: str) -> None:
    message = json.loads(TEXT)
    FORGED[what](message)
    assert not is_taken(json.dumps(message), KEYED)


def test_another_actors_message_is_refused() -> None:
    message = json.loads(TEXT)
    message["headers"]["task"] = "other"
    assert not is_taken(json.dumps(message), KEYED, "other")


@pytest.mark.parametrize("odd", [*OTHERS, "\u0661" * 64, "\ud800", "é" * 64])
@pytest.mark.parametrize("unsigned", [True, False])
def test_a_signature_of_another_form(odd: Any, unsigned: bool) -> None:
    message = json.loads(TEXT)
    message["headers"]["signature"] = odd
    taken = is_taken(json.dumps(message), Signer([NEW], accept_unsigned=unsigned))
    assert taken is (odd is None and unsigned)


@pytest.fixture
def beat(emptied: Settings) -> Celery:
    app = Celery("beat", set_as_current=False)
    app.conf.update(configuration(emptied, [ACTOR]))
    return app


@pytest.mark.parametrize("by", [KEYED, UNSIGNED])
def test_what_beat_sends_is_signed(beat: Celery, emptied: Settings, by: Signer) -> None:
    handler = sign(by)
    signals.before_task_publish.connect(handler)
    try:
        beat.send_task(NUDGE, queue=NUDGE)
        beat.send_task(SWEEP, kwargs={"repair": False, "every": 90.0}, queue=SPARK_QUEUE, expires=60)
        beat.send_task("another", queue=ACTOR)
    finally:
        signals.before_task_publish.disconnect(handler)
    with redis.Redis.from_url(emptied.broker_url) as server:
        nudge, sweep, other = (server.lindex(queue, 0) for queue in (NUDGE, SPARK_QUEUE, ACTOR))
    assert b"signature" not in other
    untrusted.nudge(nudge, NUDGE, by)
    assert untrusted.sweep(sweep, SWEEP, by) == (False, 90.0)
    for text, take in ((nudge, untrusted.nudge), (sweep, untrusted.sweep)):
        if by is KEYED:
            with pytest.raises(MessageRefused, match="signature"):
                take(text, json.loads(text)["headers"]["task"], Signer([OLD]))
    forged = json.loads(sweep)
    forged["headers"]["expires"] = None
    if by is KEYED:
        with pytest.raises(MessageRefused, match="signature"):
            untrusted.sweep(json.dumps(forged).encode(), SWEEP, by)


def test_the_settings_key_signs(emptied: Settings) -> None:
    by = signer(load(message_key=f"{NEW},{OLD}"))
    Broker(emptied.broker_url, by).push([GOOD])
    with redis.Redis.from_url(emptied.broker_url) as server:
        assert server.lindex(ACTOR, 0).decode() == TEXT
    assert is_taken(encode(GOOD, Signer([OLD])), by)
