"""What an operator is told of an error."""

from __future__ import annotations

from random import Random

import pytest

from recovery.errors import InputError
from recovery.retry import explain_code, explain_couchbase, explain_error, explain_reason


def test_an_error() -> None:
    said = explain_error("pymongo.errors.NotPrimaryError", idempotent=False, random=Random(1))
    assert (said.reason, said.error_class, said.retry) == ("NOT_PRIMARY", "retriable", True)
    assert said.delay_seconds is not None and 60 <= said.delay_seconds <= 90
    assert set(said.as_dict()) == {
        *("reason", "allows_non_idempotent_retry", "always_retry", "code", "class", "retry", "delay_seconds", "why")
    }


def test_what_is_not_idempotent_is_not_sent_again_after_a_time_out() -> None:
    assert explain_error("TimeoutError").retry
    said = explain_error("TimeoutError", idempotent=False)
    assert not said.retry and "not idempotent" in said.why


# What Hive's design calls a mistake, by the number that it had: what it is now.
@pytest.mark.parametrize(
    ("number", "now", "error_class"),
    [
        (20016, 40016, "not retriable"),
        (20017, 40017, "not retriable"),
        (20018, 40018, "not retriable"),
        (20019, 40019, "not retriable"),
        (20020, 10020, "semantic"),
        (20021, 10021, "semantic"),
        (30045, 30045, "retriable"),
        (40000, 40000, "not retriable"),
        (30101, 30101, "retriable"),
        (30102, 30102, "retriable"),
        (30103, 30103, "retriable"),
    ],
)
def test_hives_codes(number: int, now: int, error_class: str) -> None:
    said = explain_code(number)
    assert (said.code, said.error_class, said.retry) == (now, error_class, error_class == "retriable")


def test_a_code_that_nobody_has_goes_by_its_range() -> None:
    assert [explain_code(number).retry for number in (10500, 25999, 49999)] == [False, True, False]
    with pytest.raises(InputError, match="must be from 10000 to 49999"):
        explain_code(7)


def test_a_reason_and_an_answer() -> None:
    assert explain_reason("KV_LOCKED").delay_seconds == 0.001
    assert explain_reason("KV_NOT_MY_VBUCKET", attempt=3).delay_seconds == 0.1
    assert not explain_reason("SOCKET_CLOSED_WHILE_IN_FLIGHT").retry
    assert explain_reason("SOCKET_CLOSED_WHILE_IN_FLIGHT", idempotent=True).retry
    assert not explain_couchbase("kv", 0x09, operation="unlock").retry


@pytest.mark.parametrize("name", ["", "no class", "builtins.print", "os.path"])
def test_what_is_no_class(name: str) -> None:
    with pytest.raises(InputError, match=r"package\.module\.Name"):
        explain_error(name)


def test_a_class_that_is_not_installed_is_known_by_its_name() -> None:
    assert explain_error("urllib3x.Nope").reason == "UNKNOWN"
    assert explain_error("aiohttp.client_exceptions.ClientConnectorError").retry
