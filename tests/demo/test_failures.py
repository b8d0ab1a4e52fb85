"""Attempts that fail for what passes by itself: as many as was asked for, and the same ones by the same seed."""

from __future__ import annotations

import pytest

from recovery.demo import app
from recovery.demo.app import InjectedFailure
from recovery.demo.options import Options
from recovery.errors import InputError
from recovery.retry import SHIPPED, classify


def outcomes(tasks: int = 1000) -> list[str]:
    found = []
    for task in range(tasks):
        failure = InjectedFailure(f"1/t{task}", 1)
        try:
            failure.before()
            failure.after()
        except OSError as error:
            assert classify(error, SHIPPED).is_retriable, "the demo's errors are to pass"
            found.append(type(error).__name__)
        else:
            found.append("")
    return found


def test_a_part_of_attempts_fails_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(seed: int) -> list[str]:
        for name, value in app.failure_environment(0.33, seed).items():
            monkeypatch.setenv(name, value)
        return outcomes()

    first = of(7)
    assert of(7) == first != of(8)
    assert 280 < sum(map(bool, first)) < 380
    assert len(set(first)) == 5


def test_none_fails_unless_it_was_asked_for() -> None:
    assert app.failure_environment(0, 7) == {}
    assert set(outcomes(100)) == {""}


@pytest.mark.parametrize("fail", [-0.1, 0.95, float("nan")])
def test_a_part_that_makes_no_sense(fail: float) -> None:
    with pytest.raises(InputError, match="--fail"):
        Options(fail=fail)


def test_a_fault_that_there_is_not() -> None:
    with pytest.raises(InputError, match="--fault flood: give one of worker_killed, "):
        Options(chaos=True, faults=["flood"])
    with pytest.raises(InputError, match="only with --chaos"):
        Options(faults=["mongodb_away"])
