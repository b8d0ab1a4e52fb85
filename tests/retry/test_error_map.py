"""A server's own map of its errors: whether is taken from it, when is not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from recovery.errors import InputError
from recovery.retry import (
    SHIPPED,
    BestEffort,
    Catalogue,
    Classified,
    Entry,
    ErrorCode,
    ErrorMap,
    Reason,
    Request,
    RetryAction,
    ServerCall,
    classify,
    maybe_retry,
)
from recovery.retry.catalogue import check_together
from recovery.retry.codes import NOT_INDICATED, RETRY_INDICATED
from recovery.retry.in_place import call
from recovery.retry.reasons import KV_LOCKED


class ServerError(Exception):
    def __init__(self, code: int) -> None:
        super().__init__(f"status {code:#x}")
        self.code = code


NAME = f"{ServerError.__module__}.{ServerError.__qualname__}"
SENT = {
    "version": 1,
    "errors": {
        "9": {"name": "LOCKED", "attrs": ["item-locked"]},
        "86": {
            "name": "ETMPFAIL",
            "attrs": ["temp", "retry-later"],
            "retry": {"strategy": "constant", "interval": 60_000, "after": 60_000, "max-duration": 1, "ceil": 1},
        },
        "8a": {"name": "NOW", "attrs": ["retry-now"]},
        "25": {"name": "EINVAL", "attrs": ["special-handling"]},
    },
}
LOCKED = Entry(ErrorCode(27003, "LOCKED", "It is locked"), KV_LOCKED, types=frozenset({NAME}), numbers=frozenset({9}))
MAPPED = Catalogue("server", (LOCKED,), ErrorMap.read(SENT, frozenset({NAME})))


def found(error: Exception) -> Classified:
    return classify(error, [*SHIPPED, MAPPED])


@pytest.mark.parametrize("number", [0x86, 0x8A])
def test_a_retry_that_is_indicated_is_the_orchestrators(number: int) -> None:
    said = found(ServerError(number))
    assert (said.code, said.reason.name, said.catalogue) == (RETRY_INDICATED, "KV_ERROR_MAP_RETRY_INDICATED", "server")
    assert said.is_retriable and said.reason.allows_non_idempotent_retry


@pytest.mark.parametrize("number", [0x25, 0x01], ids=["not indicated", "not in the map"])
def test_anything_else_is_cancelled_and_no_strategy_asked(number: int) -> None:
    asked: list[Reason] = []

    class Asks(BestEffort):
        async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
            asked.append(reason)
            return await super().retry_after(request, reason)

    said = found(ServerError(number))
    assert (said.code, said.is_retriable) == (NOT_INDICATED, False)

    def step() -> None:
        raise ServerError(number)

    with pytest.raises(ServerError):
        call(step, ServerCall("get", Asks(), idempotent=True), classified=found)
    assert asked == []


def test_what_an_entry_knows_is_not_asked_of_the_map() -> None:
    assert found(ServerError(9)).reason is KV_LOCKED


def test_its_intervals_are_not_used() -> None:
    said = found(ServerError(0x86))
    assert said.retry_after is None
    ruling = asyncio.run(maybe_retry(ServerCall("get", BestEffort(lambda _: 0.25)), said.reason))
    assert ruling.delay == 0.25


def test_of_other_errors_it_says_nothing() -> None:
    class Another(Exception):
        code = 0x86

    assert found(Another()).catalogue is None
    assert found(ConnectionRefusedError()).catalogue == "python"


def test_two_catalogues_may_have_one_each() -> None:
    check_together([*SHIPPED, MAPPED, Catalogue("other", (), ErrorMap.read(SENT, frozenset({"other.Error"})))])


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (5, "5 is not an error map"),
        ({}, "is not an error map; it must have 'errors'"),
        ({"errors": [1]}, "is not an error map"),
        ({"errors": {"xyz": {"attrs": []}}}, "the code 'xyz', which is not a hexadecimal number"),
        ({"errors": {None: {"attrs": []}}}, "the code None"),
        ({"errors": {"86": {}}}, "no 'attrs', a list of texts, for 86"),
        ({"errors": {"86": {"attrs": "retry-now"}}}, "no 'attrs'"),
        ({"errors": {"86": {"attrs": [1]}}}, "no 'attrs'"),
        ({"errors": {"86": 5}}, "an error map has no 'attrs', a list of texts, for 86: 5$"),
    ],
)
def test_what_is_no_map(document: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        ErrorMap.read(document, frozenset({NAME}))


def test_a_map_is_of_some_errors() -> None:
    with pytest.raises(InputError, match=r"^an error map has no types; give the error classes whose numbers it has$"):
        ErrorMap.read(SENT, frozenset())


def test_its_codes_are_hexadecimal() -> None:
    read = ErrorMap.read(SENT, frozenset({NAME}))
    assert {number: read.says(number)[0] for number in (0x86, 0x8A, 0x25, 86)} == {
        0x86: RETRY_INDICATED, 0x8A: RETRY_INDICATED, 0x25: NOT_INDICATED, 86: NOT_INDICATED,
    }  # fmt: skip
