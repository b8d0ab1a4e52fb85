"""What keeps further processes of a type from being started once one has failed: `on_failure`."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import Backoff
from recovery.engine.end import breaking
from recovery.engine.operators.markers import marker_of
from recovery.engine.operators.overrides import ProcessTypeOverrides
from recovery.errors import InputError, StartRefused
from recovery.health import look, repair
from recovery.records import ProcessState
from tests.faults import Died
from tests.world import World


def make(world: World, **settings: Any) -> Any:
    @world.app.process("copy", **settings)
    def copy(error: str = "") -> str:
        if error == "away":
            raise ConnectionRefusedError(111, "away")
        if error:
            raise ValueError(error)
        return "done"

    return copy


def fail(world: World, copy: Any, error: str = "no sales") -> str:
    process_id = world.start(copy, error)
    assert world.bring_to_end(process_id).state is ProcessState.BROKEN
    return process_id


def test_a_failure_for_good_disables_the_type_until_an_operator_enables_it(world: World) -> None:
    copy = make(world, on_failure="disable")
    other = world.app.process("other")(lambda: "done")
    process_id = fail(world, copy)
    assert marker_of(world.app.resources, "copy", None) is None
    with pytest.raises(StartRefused) as refused:
        world.start(copy)
    told = str(refused.value)
    assert f"by recovery, for 'process {process_id} failed with code 40000, ValueError: no sales'" in told
    assert "recovery process-type enable copy" in told
    assert world.run(other) == "done", "others are as they were"
    (entry,) = world.store.database["auditLog"].find({"what": "process type disable"})
    assert (entry["target"], entry["who"], entry["outcome"]) == ("copy", "recovery", "done")
    assert ProcessTypeOverrides(world.app.resources).enable("copy", "sales are there", by="me")
    assert world.run(copy) == "done"


def test_a_word_that_is_none_of_them_says_nothing(world: World) -> None:
    """As a later version may store it: the process breaks all the same."""
    copy = make(world, on_failure="disable")
    world.tell()
    world.store.database["processTypes"].update_one({"_id": "copy"}, {"$set": {"onFailure": "call somebody"}})
    world.store.preferences.invalidate()
    fail(world, copy)
    world.start(copy)


def test_an_exhausted_error_disables_it_too(world: World) -> None:
    copy = make(world, on_failure="disable", retry=Backoff(initial=0.1, jitter=(0, 0), maximum=0.1, total=0.25))
    process_id = fail(world, copy, "away")
    with pytest.raises(StartRefused, match=f"process {process_id} failed with code 40005"):
        world.start(copy)


def test_an_exhausted_error_leaves_a_marker(world: World) -> None:
    policy = Backoff(initial=0.1, jitter=(0, 0), maximum=0.1, total=0.25)
    process_id = fail(world, make(world, on_failure="marker", retry=policy), "away")
    marker = marker_of(world.app.resources, "copy", None)
    assert marker is not None and (marker.process, marker.code) == (process_id, 40005)
    assert marker.stack is not None and "ConnectionRefusedError" in marker.stack


@pytest.mark.parametrize(
    ("settings", "marker"),
    [
        ({}, False),
        ({"on_failure": "off", "markers": True}, False),
        ({"on_failure": "marker"}, True),
        ({"markers": True}, True),
    ],
)
def test_the_other_actions(world: World, settings: dict[str, Any], marker: bool) -> None:
    copy = make(world, **settings)
    fail(world, copy)
    assert (marker_of(world.app.resources, "copy", None) is not None) == marker
    if marker:
        with pytest.raises(StartRefused):
            world.start(copy)
    else:
        assert world.run(copy) == "done"


def test_whoever_is_late_with_it_does_not_disable_what_was_enabled_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off before it disabled the type, which another failure did then; an operator enabled it, and the first comes
    back."""
    copy = make(world, on_failure="disable")

    def die(*_: object) -> None:
        raise Died

    monkeypatch.setattr(breaking, "mark", die)
    late = world.start(copy, "no sales")
    with pytest.raises(Died):
        world.pump()
        world.flush()
    monkeypatch.undo()
    assert world.process(late).marker_due
    assert world.run(copy) == "done", "it is not disabled yet"
    fail(world, copy)
    assert ProcessTypeOverrides(world.app.resources).enable("copy", by="me")
    repair(world.app.resources, look(world.app.resources, late), "a test")
    assert not world.process(late).marker_due
    assert world.run(copy) == "done"


def test_cut_off_before_it_the_scanner_disables_the_type(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = make(world, on_failure="disable")

    def die(*_: object) -> None:
        raise Died

    monkeypatch.setattr(breaking, "mark", die)
    process_id = world.start(copy, "no sales")
    with pytest.raises(Died):
        world.pump()
        world.flush()
    monkeypatch.undo()
    repair(world.app.resources, look(world.app.resources, process_id), "a test")
    with pytest.raises(StartRefused, match="is disabled"):
        world.start(copy)


def test_an_operator_sets_it_while_workers_run(world: World) -> None:
    copy = make(world)
    fail(world, copy)
    ProcessTypeOverrides(world.app.resources).set("copy", {"on_failure": "disable"}, by="me")
    fail(world, copy)
    with pytest.raises(StartRefused, match="is disabled"):
        world.start(copy)


def test_a_word_that_is_none(world: World) -> None:
    with pytest.raises(InputError, match="on_failure must be 'off' or 'marker' or 'disable', not 'stop'"):
        make(world, on_failure="stop")
