"""Asking a coroutine from code that is not asynchronous, with and without an event loop in the thread."""

from __future__ import annotations

import asyncio

import pytest

from recovery.retry.orchestrator import decided


async def answer() -> str:
    await asyncio.sleep(0)
    return "retry"


async def fail() -> str:
    raise ValueError("no answer")


def test_a_coroutine_is_run_to_its_answer() -> None:
    assert decided(answer()) == "retry"


def test_a_coroutine_is_run_to_its_answer_although_the_thread_has_a_loop() -> None:
    async def within() -> str:
        return decided(answer())

    assert asyncio.run(within()) == "retry"


def test_an_error_of_the_coroutine_reaches_the_caller_with_and_without_a_loop() -> None:
    async def within() -> str:
        return decided(fail())

    with pytest.raises(ValueError, match="no answer"):
        decided(fail())
    with pytest.raises(ValueError, match="no answer"):
        asyncio.run(within())
