"""What a demo may be told, and when it kills."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from recovery.demo.options import Chaos, Disaster, Options, disaster_named
from recovery.errors import InputError, WorkflowError


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"processes": 0}, "--processes 0"),
        ({"workers": -1}, "--workers -1"),
        ({"kill_every": -0.1}, "--kill-every -0.1"),
        ({"kill_every": math.nan}, "--kill-every nan"),
        ({"go_on": -1.0}, "--for -1"),
        ({"time_scale": math.inf}, "--time-scale inf"),
        ({"timeout": 0}, "--timeout 0"),
        ({"timeout": math.nan}, "--timeout nan"),
        ({"kill_half_way": True}, "--kill-half-way: only with --disaster"),
        ({"drill": True, "disaster": Disaster.GRAPH}, "--drill and --disaster: give one of them"),
        ({"drill": True, "workers": 1}, "--drill --workers 1: it kills a worker, so it needs at least 2"),
        ({"chaos": True, "disaster": Disaster.GRAPH}, "--chaos and --disaster: give one of them"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Options(**given)


def test_a_disaster_that_there_is_not() -> None:
    with pytest.raises(InputError, match="--disaster flood: give one of redis, graph, mixed"):
        disaster_named("flood")


def test_without_a_file_the_example_is_run() -> None:
    (workflow,) = Options().workflows()
    assert workflow.name == "order-fulfilment"


def test_a_wrong_file(tmp_path: Path) -> None:
    with pytest.raises(WorkflowError, match=r"none\.json"):
        Options(files=[tmp_path / "none.json"]).workflows()


def test_one_seed_one_choice() -> None:
    def victims(chaos: Chaos) -> list[int]:
        return [chaos.choose(range(5)) for _ in range(20)]

    assert victims(Chaos(1, seed=7)) == victims(Chaos(1, seed=7)) != victims(Chaos(1, seed=8))
    assert Chaos(1).seed != Chaos(1).seed


def test_kills_are_due_one_by_one() -> None:
    chaos = Chaos(2.0, seed=1)
    assert not chaos.is_due(100)
    chaos.start(100)
    assert [chaos.is_due(now) for now in (101, 102, 102.1, 103.9, 104, 110, 110.1)] == [
        False, True, False, False, True, True, False,
    ]  # fmt: skip
    chaos.stop()
    assert not chaos.is_due(200)


def test_no_kills() -> None:
    chaos = Chaos(0)
    chaos.start(0)
    assert not chaos.is_due(1e9)
