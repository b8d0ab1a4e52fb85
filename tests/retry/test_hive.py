"""Hive's errors, in the words in which Hive writes them: each gets its code, class and reason."""

from __future__ import annotations

import time

import pytest

from recovery.retry import SHIPPED, Classified, classify
from tests.retry.hive_errors import MESSAGES, PERMANENT, TRANSIENT, failed


def found(text: str) -> Classified:
    return classify(RuntimeError(text), SHIPPED)


@pytest.mark.parametrize(("text", "code"), MESSAGES, ids=range(len(MESSAGES)))
def test_a_message(text: str, code: int) -> None:
    said = found(text)
    assert said.code.number == code
    assert said.is_retriable == (20_000 <= code < 40_000)
    assert said.catalogue == (None if code == 40_000 else "hive_replication")


def test_every_number_of_the_table_has_its_class() -> None:
    numbers = {*PERMANENT, *TRANSIENT, *range(10_000, 50_000, 97)}
    by_class = {number: found(failed(number)).code.error_class.value for number in numbers}
    assert {n for n in numbers if by_class[n] == "semantic"} == {n for n in numbers if n < 20_000}
    retriable = {n for n in numbers if by_class[n] == "retriable"}
    assert retriable == {n for n in numbers if 20_000 <= n < 40_000} - {*PERMANENT}
    assert {*TRANSIENT} <= retriable


@pytest.mark.parametrize(
    "text",
    ["[WinError 10061] refused", "socket error 10054", "HTTP error 40399", "code=20018", "order 20018", "Ranger is up"],
)
def test_what_is_not_hives(text: str) -> None:
    assert found(text).catalogue is None


def test_a_long_text_is_searched_quickly() -> None:
    began = time.process_time()
    found("ranger " * 10_000)
    found("Connection refused " * 10_000)
    assert time.process_time() - began < 0.5
