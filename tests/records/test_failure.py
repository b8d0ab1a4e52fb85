"""Failures go through JSON as themselves; fingerprints are alike for alike errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recovery import Failure
from recovery.engine.actors.call import describe
from recovery.errors import NotEncodable
from recovery.records import Decision
from recovery.records.failure import FRAMES, fingerprint
from recovery.records.values import decode, dump, encode

FAILED = Failure("ValueError", "é, '$failure'", "pay", "abc")


@pytest.mark.parametrize("value", [FAILED, [FAILED, 1], {"a": {"b": [FAILED]}}])
def test_comes_back_the_same(value: Any) -> None:
    text = encode(value, "value").text
    assert decode(text) == value
    assert decode(text, lambda _: pytest.fail("nothing is promised")) == value
    assert dump(value) == text


def test_beside_a_promise() -> None:
    text = '[{"$promise":"t"},{"$failure":{"kind":"K","message":"m","actor":"a","task":"t"}},"$failure"]'
    assert decode(text, lambda task: f"value of {task}") == ["value of t", Failure("K", "m", "a", "t"), "$failure"]


@pytest.mark.parametrize("stored", [{"$failure": 1}, {"$failure": {"kind": "K"}}, {"$failure": None, "more": 1}])
def test_what_was_stored_before_the_key_was_reserved(stored: Any) -> None:
    assert decode(json.dumps(stored)) == stored


@pytest.mark.parametrize("value", [{"$failure": 1}, [{"$failure": {"kind": "K"}, "more": 1}]])
def test_the_key_is_reserved(value: Any) -> None:
    with pytest.raises(NotEncodable, match="the key '\\$failure' is reserved for failures; rename it"):
        encode(value, "value")


def test_its_fields_are_texts() -> None:
    with pytest.raises(NotEncodable, match=r"value\[0\].message: a failure's message is a str, not 3"):
        encode([Failure("K", 3, "a", "t")], "value")  # type: ignore[arg-type]


def test_dump_takes_nothing_else() -> None:
    with pytest.raises(TypeError, match="a set is not JSON"):
        dump({1})


FRAME = ("shop.orders", "pay")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([FRAME, ("plugins.p_1f3a9c0d2e", "run")], [FRAME, ("plugins.p_77b0c1d2e3", "run")]),
        ([FRAME, ("m", "handler_0x7f3A00")], [FRAME, ("m", "handler_0x1")]),
        ([FRAME, ("m", "step12")], [FRAME, ("m", "step7")]),
        ([("way.one", "in"), *[FRAME, ("m", "f")] * 4], [("way.other", "in"), *[FRAME, ("m", "f")] * 4]),
        ([("m", "down")] * 3, [("m", "down")] * 700),
    ],
    ids=["id", "address", "number", "further out", "recursion"],
)  # fmt: skip
def test_alike(one: Any, other: Any) -> None:
    assert fingerprint("ValueError", one) == fingerprint("ValueError", other)


@pytest.mark.parametrize(
    ("kind", "frames"),
    [
        ("KeyError", [FRAME]),
        ("ValueError", []),
        ("ValueError", [("shop.orders", "ship")]),
        ("ValueError", [FRAME, ("m", "f")]),
    ],
)
def test_not_alike(kind: str, frames: Any) -> None:
    assert fingerprint(kind, frames) != fingerprint("ValueError", [FRAME])


def test_short() -> None:
    assert len(fingerprint("ValueError", [("m", chr(97 + n)) for n in range(3 * FRAMES)])) == 12
    assert fingerprint("\ud800") != fingerprint("")


@pytest.mark.parametrize(
    ("kind", "frames", "mark"),
    [
        ("ValueError", [], "5b4b4fbfb505"),
        ("KeyError", [FRAME, FRAME, ("m", "handler_0x7f3A00"), ("plugins.p_1f3a9c0d2e", "step12")], "c1aca50edcd9"),
        ("KeyError", [("m", chr(97 + number)) for number in range(FRAMES + 1)], "133678a18333"),
        ("\ud800", [FRAME], "12b3c919b4a0"),
    ],
    ids=["no frames", "varying parts", "too many frames", "no text"],
)
def test_a_fingerprint_is_the_same_everywhere(kind: str, frames: Any, mark: str) -> None:
    """Stored by one version, compared by another: it must never change."""
    assert fingerprint(kind, frames) == mark


def deep(number: int, message: str) -> None:
    if number:
        deep(number - 1, message)
    raise ValueError(message)


def described(*args: Any) -> str | None:
    try:
        deep(*args)
    except ValueError as error:
        return describe(error, Decision(id="p/t", actor="a", pass_key="k")).fingerprint
    return None


def test_of_an_exception() -> None:
    """Its message, and how deep it was, make no difference."""
    assert described(0, "7 is too much") == described(5, "8 is too much") is not None


def test_of_code_that_has_no_module() -> None:
    try:
        exec("raise ValueError", {})
    except ValueError as error:
        assert describe(error, Decision(id="p/t", actor="a", pass_key="k")).fingerprint
