"""Our own work is tried again by policies, and by nothing else: as requests in a thread, as deadlines in records."""

from __future__ import annotations

import ast
import logging
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

import recovery
from recovery.errors import StoreUnavailable
from recovery.retry import Backoff
from recovery.retry.in_place import by_driver, call
from recovery.retry.own_work import ALL, FAILED_APPLY, LOST_MESSAGE, PUSH, SPARK_JOB, STORE_CALL, OwnWork
from recovery.retry.strategies import Stop
from recovery.store.expressions import by_policy, by_policy_since
from tests.world import World

ROOT = Path(recovery.__file__).parent
CURVES = {"retry/policy.py", "retry/strategies.py", "retry/breaker.py"}
"""Modules that work out delays: Hive's policy, the RFC's best effort, and how long a server is left alone."""


GROWS = re.compile(r"^\d[\d.]* \* [\w.]*(pause|delay|wait)|(pause|delay|wait)\w* \* \d[\d.]*$")
"""As in `min(2 * self._pause, LONGEST)`."""


def powers(path: Path) -> Iterator[int]:
    """The lines in which a power grows with what was counted."""
    for node in ast.walk(ast.parse(path.read_text())):
        is_power = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
        if is_power and any(isinstance(part, ast.Name) and part.id.islower() for part in ast.walk(node.right)):
            yield node.lineno
        if isinstance(node, ast.Constant) and node.value == "$pow":
            yield node.lineno
        if isinstance(node, ast.BinOp) and GROWS.search(ast.unparse(node)):
            yield node.lineno


def test_nobody_has_a_curve_of_his_own() -> None:
    allowed = CURVES | {"store/expressions.py"}  # by a policy
    others = {path.relative_to(ROOT).as_posix(): list(powers(path)) for path in ROOT.rglob("*.py")}
    assert {name: lines for name, lines in others.items() if lines and name not in allowed} == {}


def test_each_has_a_name_of_its_own_and_may_run_twice() -> None:
    assert len({one.name for one in ALL}) == len(ALL) >= 15
    assert all(one.request("a call").idempotent for one in ALL)


@pytest.mark.parametrize(
    ("work", "delays"),
    [
        (LOST_MESSAGE, [1, 1, 1, 1, 1, 1, 2, 4, 8, 16, 30, 30]),
        (STORE_CALL, [0.1, 0.2, 0.4, 0.5, 0.5]),
        (SPARK_JOB, [6, 6, 6]),
        (PUSH, [0, 0]),
    ],
    ids=lambda given: "" if isinstance(given, list) else given.name,
)
def test_delays(work: OwnWork, delays: list[float]) -> None:
    assert [work.delay(failures) for failures in range(1, len(delays) + 1)] == delays


class Failing:
    """Fails so often, and counts."""

    def __init__(self, times: int) -> None:
        self.left, self.tried = times, 0

    def __call__(self) -> str:
        self.tried += 1
        self.left -= 1
        if self.left >= 0:
            raise StoreUnavailable("gone")
        return "done"


AT_ONCE = replace(SPARK_JOB, policy=Backoff(initial=0.0, jitter=(0, 0)))


def test_a_request_fails_after_its_tries(caplog: pytest.LogCaptureFixture) -> None:
    step = Failing(9)
    with pytest.raises(StoreUnavailable):
        call(step, AT_ONCE.request("a job"), classified=by_driver)
    assert step.tried == 3
    refusals = [one for one in caplog.records if "not retried" in one.getMessage()]
    assert [one.levelno for one in refusals] == [logging.WARNING]
    assert call(Failing(2), AT_ONCE.request("a job"), classified=by_driver) == "done"


def test_a_request_fails_when_it_is_time_to_stop() -> None:
    step = Failing(9)
    with pytest.raises(StoreUnavailable):
        call(step, AT_ONCE.request("a job", stop=Stop(lambda *_: True)), classified=by_driver)
    assert step.tried == 1


def test_a_delay_is_cut_to_the_deadline_and_the_call_is_cancelled() -> None:
    step, waited = Failing(9), list[float]()
    request = SPARK_JOB.request("a job", seconds=2.0)
    with pytest.raises(StoreUnavailable):
        call(step, request, classified=by_driver, wait=waited.append)
    assert step.tried == 1, "it is not sent again"
    assert [round(seconds) for seconds in waited] == [2], "in place of 6"


def test_the_database_works_out_the_same_delays(world: World) -> None:
    """Of many records at once: by how often they failed, and by how long ago that was first."""
    collection = world.store.database["scratch"]
    collection.insert_one({"_id": 1, "at": world.store.now() - timedelta(seconds=40)})
    grown = {f"after{failures}": by_policy(LOST_MESSAGE.policy, {"$literal": failures}, 10.0) for failures in range(8)}
    since = {"since": by_policy_since(FAILED_APPLY.beginning_with(2.0), "$at")}
    (found,) = collection.aggregate([{"$project": grown | since}])
    expected = [10_000 * LOST_MESSAGE.policy.base(failures) for failures in range(8)]
    assert [found[f"after{failures}"] for failures in range(8)] == expected
    assert 42_000 <= found["since"] < 45_000, "twice as long as it has waited, about"
