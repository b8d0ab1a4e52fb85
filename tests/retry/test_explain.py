"""What an operator is told of an error."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

import pytest

from recovery.errors import InputError
from recovery.retry import (
    SHIPPED,
    Backoff,
    Catalogue,
    Entry,
    ErrorCode,
    ErrorExplanation,
    explain_code,
    explain_couchbase,
    explain_error,
    explain_reason,
)
from recovery.retry.reasons import KV_LOCKED

STEADY = Backoff(initial=10, coefficient=2, jitter=(0, 0))
"""Waits for 10 s, 20 s, 40 s."""
ODD = ErrorCode(27001, "ODD", "It is odd")


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


def test_an_explanation_has_all_that_is_known_of_the_error() -> None:
    assert explain_error("builtins.ConnectionResetError", attempt=2, policy=STEADY) == ErrorExplanation(
        reason="SOCKET_CLOSED_WHILE_IN_FLIGHT", allows_non_idempotent_retry=False, always_retry=False,
        code=21003, error_class="retriable", retry=True, delay_seconds=40.0,
        why="catalogue python: The connection was closed during the request; it is retried by the policy",
    )  # fmt: skip


def test_an_error_is_known_by_its_number_and_its_status() -> None:
    assert explain_error("pymongo.errors.OperationFailure", number=112).code == 22007
    assert explain_error("RuntimeError", status=503).code == 24002
    assert explain_error("RuntimeError", text="REDIS", number=112).code == 40000


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (Entry(ODD, KV_LOCKED, types=frozenset({"builtins.LookupError"})), "KeyError"),
        (Entry(ODD, KV_LOCKED, types=frozenset({"builtins.BaseException"})), "KeyError"),
        (Entry(ODD, KV_LOCKED, pattern=r"^$"), "KeyError"),
    ],
    ids=["a superclass", "the class of all errors", "no text"],
)
def test_an_error_is_known_by_its_superclasses_and_by_having_no_text(entry: Entry, name: str) -> None:
    assert explain_error(name, catalogues=(*SHIPPED, Catalogue("mine", (entry,)))).code == ODD.number


def test_an_error_that_no_catalogue_knows_is_explained_as_that() -> None:
    assert explain_error("ZeroDivisionError").why == "no catalogue knows it; waiting does not help"


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (40016, "events that were cleaned up do not come back: a bootstrap is needed (it was 20016)"),
        (20016, "events that were cleaned up do not come back: a bootstrap is needed (it was 20016)"),
        (30045, "the file system may be back at the next attempt"),
        (40001, "The attempts returned no result, and no further attempt follows"),
        (21001, "No server listens at the address, or the host can't be reached"),
        (26003, "Couchbase: the document is locked"),
        (25999, "no catalogue has it, so its range alone says what it is"),
        (49999, "no catalogue has it, so its range alone says what it is"),
    ],
)
def test_a_code_is_explained_in_the_words_of_whoever_has_it(number: int, why: str) -> None:
    said = explain_code(number)
    assert said.why == f"{why}; {'it is retried by the policy' if said.retry else 'waiting does not help'}"


@pytest.mark.parametrize("number", [30045, 21001, 26003, 25999])
def test_the_delay_of_a_code_is_the_policys(number: int) -> None:
    assert explain_code(number, policy=STEADY).delay_seconds == 10.0
    assert explain_code(number, policy=STEADY, attempt=2).delay_seconds == 40.0
    assert explain_code(number, random=Random(7)).delay_seconds == Backoff().delay(0, Random(7))


def test_the_delay_of_an_error_is_the_policys() -> None:
    assert explain_error("TimeoutError", policy=STEADY).delay_seconds == 10.0
    assert explain_error("TimeoutError", random=Random(7)).delay_seconds == Backoff().delay(0, Random(7))
    assert explain_error("TimeoutError", policy=Backoff(initial=0, jitter=(0, 0))).delay_seconds == 0.0


def test_a_code_is_taken_for_an_idempotent_tasks_unless_it_is_said_otherwise() -> None:
    assert explain_code(21003).retry
    said = explain_code(21003, idempotent=False)
    assert not said.retry
    assert said.why == (
        "The connection was closed during the request; the connection was closed before the answer came, and it is not "
        "idempotent"
    )


def test_a_code_that_nobody_has_gets_the_reason_of_its_range() -> None:
    reasons = [explain_code(number).reason for number in (10500, 25999, 49999)]
    assert reasons == ["UNKNOWN", "SERVICE_RESPONSE_CODE_INDICATED", "UNKNOWN"]


def test_a_reason_is_explained_by_best_effort() -> None:
    locked = explain_reason("KV_LOCKED", attempt=3)
    assert (locked.code, locked.delay_seconds) == (20000, 0.008)
    assert locked.why == "the document is locked; best effort retries it"
    moved = explain_reason("KV_NOT_MY_VBUCKET")
    assert moved.why == "another node has this key now; it is always retried, by the controlled back-off"
    closed = explain_reason("SOCKET_CLOSED_WHILE_IN_FLIGHT")
    told = "the connection was closed before the answer came; it is not idempotent, so it may not be sent again"
    assert closed.why == told
    unknown = explain_reason("UNKNOWN")
    assert (unknown.code, unknown.retry) == (40000, False)
    assert unknown.why == "the cause is unknown, so it is not retried"
    assert explain_reason("UNKNOWN", idempotent=True) == unknown, "the RFC's text, not its reference code"


def test_an_answer_of_couchbase_is_explained_by_best_effort() -> None:
    locked = explain_couchbase("kv", 0x09, operation="get")
    assert (locked.code, locked.delay_seconds) == (26003, 0.001)
    assert explain_couchbase("kv", 0x09, operation="get", attempt=2).delay_seconds == 0.004
    assert explain_couchbase("kv", 0x50, error_map_retry=True).code == 26013
    unlisted = explain_couchbase("kv", 0x50)
    assert (unlisted.retry, unlisted.why) == (False, "the answer is not in the list of answers that are retried")


@pytest.mark.parametrize(
    "explain",
    [partial(explain_error, "TimeoutError"), partial(explain_code, 21003), partial(explain_reason, "KV_LOCKED")],
    ids=["error", "code", "reason"],
)
def test_a_number_of_retries_below_0_is_refused(explain: Callable[..., ErrorExplanation]) -> None:
    with pytest.raises(InputError) as raised:
        explain(attempt=-1)
    assert str(raised.value) == "attempt -1: must be the number of retries before this one, from 0 on"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("", "'' is not the name of an error class"),
        ("no class", "'no class' is not the name of an error class"),
        ("os..Nope", "'os..Nope' is not the name of an error class"),
        ("builtins.print", "'builtins.print' is not an error class that is there"),
        ("os.Nope", "'os.Nope' is not an error class that is there"),
        ("Nope", "'Nope' is not an error class that is there"),
        ("int", "'int' is not an error class that is there"),
    ],
)
def test_a_name_that_is_no_error_class_is_shown(name: str, told: str) -> None:
    with pytest.raises(InputError) as raised:
        explain_error(name)
    assert str(raised.value) == f"{told}; give it as 'package.module.Name'"
