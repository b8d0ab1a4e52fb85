"""Retry across instances: a schedule whose processes run and fail, by the errors that their actor raises.

docs/retry-sources.md names these tests. `tests/schedule/test_judge.py` has the same rules on records alone.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from recovery.engine import look_at
from recovery.engine.operators.markers import clear_marker
from recovery.engine.operators.schedules import Schedules
from recovery.errors import StartRefused
from recovery.records import Marker
from recovery.records.schedule import Failing
from tests.faults import Died
from tests.scan.test_due_schedules import declare, due, get, outcomes, scan
from tests.world import World

AWAY = ConnectionRefusedError(111, "away")
LATE = TimeoutError("slow")
AWAY_CODE = 21001


class Nightly:
    """A schedule whose process type raises `error` in its actor."""

    def __init__(self, world: World, error: BaseException | None = AWAY, **settings: Any) -> None:
        self.world, self.error, self.runs = world, error, 0

        @world.app.process("nightly", **{"schedule": "1h", "retry": None, **settings})
        def nightly() -> str:
            self.runs += 1
            if self.error is not None:
                raise self.error.with_traceback(None)
            return "done"

        declare(world)

    def slot(self) -> None:
        """Have the next slot come due, and run the instance if one is started."""
        due(self.world)
        scan(self.world)
        self.world.pump()

    @property
    def failing(self) -> Failing | None:
        return get(self.world).failing

    @property
    def marker(self) -> Marker | None:
        return self.world.store.markers.find("nightly")


def an_hour_goes_by(world: World) -> None:
    """Have the first failure be an hour earlier."""
    saved = get(world)
    if saved.failing is not None:
        earlier = saved.failing.evolve(since=saved.failing.since - timedelta(hours=1))
        assert world.store.schedules.save(saved.evolve(failing=earlier))


def test_instances_that_fail_with_the_same_code_are_started_as_often_as_the_count_allows(world: World) -> None:
    nightly = Nightly(world, retry_across_count=3)
    for _ in range(3):
        assert nightly.marker is None and get(world).disabled is None
        nightly.slot()
    nightly.slot()
    disabled = get(world).disabled
    assert disabled is not None and (disabled.code, disabled.marker) == (AWAY_CODE, "nightly")
    assert "3 times in a row" in disabled.reason
    assert nightly.runs == 3 and nightly.marker is not None and nightly.marker.code == AWAY_CODE


def test_instances_go_on_by_their_schedule_until_the_same_code_has_come_for_longer_than_allowed(world: World) -> None:
    nightly = Nightly(world, retry_across="3h")
    for _ in range(4):
        nightly.slot()
        assert get(world).disabled is None and nightly.marker is None
        an_hour_goes_by(world)
    nightly.slot()
    disabled = get(world).disabled
    assert disabled is not None
    assert disabled.reason == f"failed with the code {AWAY_CODE} for 3h; retry_across allows 3h"
    assert nightly.runs == 4 and nightly.marker is not None


@pytest.mark.parametrize("between", [LATE, None], ids=["another code", "a success"])
def test_another_code_or_a_success_in_between_begins_anew(world: World, between: BaseException | None) -> None:
    nightly = Nightly(world, retry_across="3h")
    for error in (AWAY, AWAY, between, AWAY, AWAY):
        nightly.error = error
        nightly.slot()
        an_hour_goes_by(world)
    nightly.error = None
    nightly.slot()
    assert nightly.runs == 6 and get(world).disabled is None
    failing = nightly.failing
    assert failing is not None and (failing.code, failing.count) == (AWAY_CODE, 2)


def test_failures_are_kept_in_the_record_of_the_schedule_for_the_workers_that_follow(world: World) -> None:
    first = Nightly(world, retry_across_count=3)
    first.slot()
    second = Nightly(World(world.settings), retry_across_count=3)
    second.slot()
    failing, last = second.failing, get(world).beside or (get(world).last_process,)
    assert failing is not None and (failing.code, failing.count) == (AWAY_CODE, 1)
    assert failing.process not in last, "the end of the second is looked at before the third"
    third = Nightly(World(world.settings), retry_across_count=3)
    third.slot()
    third.slot()
    assert first.runs + second.runs + third.runs == 3
    assert get(world).disabled is not None


def test_what_is_not_retriable_disables_the_schedule_at_once(world: World) -> None:
    nightly = Nightly(world, ValueError("a bug"), retry_across_count=3)
    nightly.slot()
    assert nightly.marker is not None and nightly.marker.code == 40000
    nightly.slot()
    nightly.slot()
    assert nightly.runs == 1 and outcomes(world) == ["started"]
    disabled = get(world).disabled
    assert disabled is not None and disabled.code == 40000
    with pytest.raises(StartRefused, match="there is a marker nightly"):
        world.start("nightly")


def test_cut_off_between_the_marker_and_the_schedule_both_are_written_in_the_end(world: World) -> None:
    nightly = Nightly(world, retry_across_count=1)
    nightly.slot()
    assert nightly.marker is None, "the schedule decides"
    due(world)
    with patch.object(world.store.schedules, "save", side_effect=Died), pytest.raises(Died):
        scan(world)
    assert nightly.marker is not None and get(world).disabled is None
    scan(world)
    assert get(world).disabled is not None and nightly.runs == 1


def test_the_previous_instance_is_looked_at_before_the_next_is_started(world: World) -> None:
    nightly = Nightly(world, ValueError("a bug"))
    due(world)
    scan(world)
    due(world)
    scan(world)
    assert outcomes(world) == ["started", "skipped"], "the first has not run yet"
    world.pump()
    nightly.slot()
    assert outcomes(world) == ["started", "skipped"] and nightly.runs == 1, "the first has failed for good"
    assert get(world).disabled is not None


@pytest.mark.parametrize("how", ["schedule enable", "marker clear"])
def test_an_operator_enables_the_schedule_or_clears_the_marker_and_has_both(world: World, how: str) -> None:
    nightly = Nightly(world, ValueError("a bug"))
    nightly.slot()
    nightly.slot()
    assert nightly.runs == 1 and get(world).disabled is not None and nightly.marker is not None
    nightly.error = None
    if how == "marker clear":
        clear_marker(world.app.resources, "nightly", "the bug is fixed", "me@here")
        look_at(world.app.resources, get(world))
    else:
        Schedules(world.app.resources, by="me@here").enable("nightly", "the bug is fixed")
    assert nightly.marker is None and get(world).disabled is None
    nightly.slot()
    assert nightly.runs == 2 and outcomes(world) == ["started", "started"]
