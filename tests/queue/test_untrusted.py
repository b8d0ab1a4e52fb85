"""Of each text, what is wanted is read, or it is refused: nothing else comes of it."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from recovery.queue import encode, remake, untrusted
from recovery.queue.message import UNSIGNED
from recovery.queue.untrusted import MAX_BYTES, MessageRefusal, MessageRefused
from tests.queue.shapes import ANY, ARGUMENT, bomb, damaged, encoded, of_celery
from tests.queue.test_message import ACTOR, body, queued

GOOD = queued()
TEXT = encode(GOOD).encode()


def refusal(text: bytes, actor: str = ACTOR) -> MessageRefusal:
    with pytest.raises(MessageRefused) as refused:
        untrusted.attempt(text, actor, UNSIGNED)
    assert ARGUMENT not in str(refused.value)
    return refused.value.reason


def test_a_message_of_ours_is_read() -> None:
    message_id, told = untrusted.attempt(TEXT, ACTOR, UNSIGNED)
    assert (told.decision_id, told.pass_key, told.queued_at) == (GOOD.id, GOOD.pass_key, GOOD.queued_at)
    assert message_id == json.loads(TEXT)["headers"]["id"]


@pytest.mark.parametrize(
    ("what", "text"), list(damaged(TEXT)), ids=lambda value: value if isinstance(value, str) else ""
)
def test_of_a_damaged_one_only_the_id_counts(what: str, text: bytes) -> None:
    """Either it is refused, or what it says of its decision stands, and no more reaches Celery."""
    try:
        message_id, told = untrusted.attempt(text, ACTOR, UNSIGNED)
    except MessageRefused as refused:
        assert ARGUMENT not in str(refused)
        return
    assert (told.decision_id, told.pass_key) == (GOOD.id, GOOD.pass_key), what
    made = remake(ACTOR, message_id, [told.decision_id, told.pass_key], {}, ACTOR, "1")
    untouched = remake(ACTOR, json.loads(TEXT)["headers"]["id"], [GOOD.id, GOOD.pass_key], {}, ACTOR, "1")
    assert made == untouched


def test_what_is_remade_says_what_celerys_own_says() -> None:
    """And what a client of an earlier version sent."""
    sent = of_celery(TEXT)
    made = remake(ACTOR, sent["headers"]["id"], [GOOD.id, GOOD.pass_key], {}, ACTOR, sent["properties"]["delivery_tag"])
    assert made["headers"] == sent["headers"]
    assert made["properties"] == {**sent["properties"], "body_encoding": "utf-8"}
    assert json.loads(made["body"]) == body(sent)
    assert untrusted.attempt(json.dumps(sent).encode(), ACTOR, UNSIGNED) == untrusted.attempt(TEXT, ACTOR, UNSIGNED)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", MessageRefusal.MALFORMED),
        (b"[" * MAX_BYTES, MessageRefusal.MALFORMED),
        (b" " * (MAX_BYTES + 1), MessageRefusal.TOO_LARGE),
        (encode(queued(actor="other")).encode(), MessageRefusal.OTHER_TASK),
    ],
)
def test_why(text: bytes, reason: MessageRefusal) -> None:
    assert refusal(text) is reason


def test_what_unpacks_to_much_is_not_unpacked() -> None:
    packed = bomb(TEXT).encode()
    tracemalloc.start()
    assert refusal(packed) is MessageRefusal.TOO_LARGE
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


SWEEP: dict[str, Any] = {
    "headers": {"task": "sweep", "id": "1", "expires": None},
    "properties": {"body_encoding": "base64"},
    "body": encoded([[], {"repair": True, "every": 60.0}, {"callbacks": None}]),
}


def sweep(**changes: Any) -> bytes:
    headers = {**SWEEP["headers"], **{name: value for name, value in changes.items() if name == "expires"}}
    others = {name: value for name, value in changes.items() if name != "expires"}
    return json.dumps({**SWEEP, "headers": headers, **others}).encode()


@pytest.mark.parametrize("repair", [True, False])
@pytest.mark.parametrize("expires", [None, "2126-01-01T00:00:00+00:00"])
def test_whether_a_sweep_repairs(repair: bool, expires: str | None) -> None:
    body = encoded([[], {"repair": repair, "every": 3600}, {}])
    assert untrusted.sweep(sweep(expires=expires, body=body), "sweep", UNSIGNED) == (repair, 3600.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"expires": "2026-01-01T00:00:00+00:00"}, MessageRefusal.EXPIRED),
        *(
            ({"expires": odd}, MessageRefusal.MALFORMED)
            for odd in ("soon", 5, [], "9999-12-31T23:59:59-23:00", "0001-01-01")
        ),
        *(
            ({"body": encoded(odd)}, MessageRefusal.MALFORMED)
            for odd in ([[], {}], [[], {"repair": 1}, {}], [[], {"repair": ANY}], {}, [[]], 5, [{}, {"repair": True}])
        ),
        *(
            ({"body": encoded([[], {"repair": True, "every": odd}, {}])}, MessageRefusal.MALFORMED)
            for odd in (0, -1, True, "60", None, 1e99, float("nan"))
        ),
        ({"body": "!"}, MessageRefusal.MALFORMED),
        ({"properties": {}}, MessageRefusal.MALFORMED),
    ],
)  # fmt: skip
def test_a_sweep_that_is_refused(changes: dict[str, Any], reason: MessageRefusal) -> None:
    with pytest.raises(MessageRefused) as refused:
        untrusted.sweep(sweep(**changes), "sweep", UNSIGNED)
    assert refused.value.reason is reason
