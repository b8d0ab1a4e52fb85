"""Custom ids: what a start does about the process that has one, and that no two processes ever have the same."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from recovery.engine.lookup import resolve
from recovery.engine.operators.auditing import who
from recovery.engine.operators.overrides import ProcessTypeOverrides
from recovery.engine.operators.redo import preview_redo
from recovery.engine.operators.restart import restart_process
from recovery.errors import CustomIdTaken, InputError, StartRefused
from recovery.records import Life, ProcessState
from recovery.search import parse
from recovery.settings import Settings
from tests.store.writing import contents
from tests.world import World

RUNNING, FINISHED, BROKEN, ABORTED = ProcessState
STATES = [RUNNING, FINISHED, BROKEN, ABORTED]
NAME = "order-17"


@pytest.fixture
def world(emptied: Settings) -> World:
    made = World(emptied)
    made.fails = True  # type: ignore[attr-defined]

    @made.app.process(retry=None, restart_after_work_timeout=True)
    def order(what: str = "tea") -> str:
        if made.fails:  # type: ignore[attr-defined]
            raise ValueError("out of tea")
        return what

    return made


def start(world: World, if_exists: Any = "return", **options: Any) -> str:
    return world.start("order", custom_id=NAME, if_exists=if_exists, **options)


def brought_to(world: World, state: ProcessState) -> str:
    """A process of this custom id, in this state."""
    world.fails = state is not FINISHED  # type: ignore[attr-defined]
    process = start(world)
    if state in (FINISHED, BROKEN):
        world.bring_to_end(process)
    if state is ABORTED:
        world.app.abort(process, "ordered twice")
    assert world.process(process).state is state
    world.fails = False  # type: ignore[attr-defined]
    return process


def named(world: World) -> list[str]:
    """Who has the custom id."""
    return [key for key, one in contents(world.store, "processes").items() if one.get("customId") == NAME]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("if_exists", ["return", "error", "restart", "new_after_end"])
def test_what_is_done_about_the_one_that_has_it(world: World, if_exists: str, state: ProcessState) -> None:
    first = brought_to(world, state)
    if if_exists == "error" and state is not ABORTED:
        with pytest.raises(CustomIdTaken, match=f"process {first} of type order .* is {state}") as caught:
            start(world, if_exists)
        assert caught.value.process_id == first
        assert named(world) == [first]
        return
    second = start(world, if_exists)
    replaced = state is ABORTED or (if_exists == "new_after_end" and state in (FINISHED, BROKEN))
    assert (second != first) == replaced
    assert named(world) == [second]
    before = world.process(first)
    if replaced:
        assert (before.custom_id, before.former_custom_id, before.replaced_by) == (None, NAME, second)
        assert before.state is (FINISHED if state is FINISHED else ABORTED)
        assert world.store.interruptions.of_process(first) == []
    assert world.bring_to_end(second).state is (BROKEN if (if_exists, state) == ("return", BROKEN) else FINISHED)


def test_by_default_an_answer_that_was_lost_is_asked_for_again(world: World) -> None:
    first = brought_to(world, BROKEN)
    assert world.start("order", custom_id=NAME) == first
    with pytest.raises(CustomIdTaken, match="other arguments"):
        world.start("order", "coffee", custom_id=NAME)
    assert world.start("order", "coffee", custom_id=NAME, if_exists="new_after_end") != first


def test_the_one_before_is_found_and_stays_what_it_was(world: World) -> None:
    first = brought_to(world, FINISHED)
    second = start(world, "new_after_end")
    world.bring_to_end(second)
    third = start(world, "new_after_end")
    assert resolve(world.app.resources, NAME) == third
    for pattern in (NAME, "order-1*"):
        query = parse(f"custom:{pattern}", world.store.now())
        assert world.store.search.page(query, None, 10) == [first, second, third]
    assert world.app.result(first) == "tea"
    with pytest.raises(InputError, match=f"gave its custom id up to process {second}; restart that one"):
        preview_redo(world.app.resources, first)
    world.store.database["processes"].delete_one({"_id": second})
    with pytest.raises(InputError, match="whose start was cut off; start it again"):
        preview_redo(world.app.resources, first)
    broken_off = world.store.processes.give_up_custom_id(third, NAME, "nobody")
    assert not broken_off, "it runs"


def test_a_redo_that_was_seen_before_the_replacement_is_refused(world: World) -> None:
    first = brought_to(world, FINISHED)
    seen = world.process(first)
    start(world, "new_after_end")
    life = Life(epoch=0, state=FINISHED, by="me", reason="late", ended_at=world.store.now())
    assert not world.store.redos.begin(seen, life, ["start"], "k", 60)


@pytest.mark.parametrize("state", [FINISHED, BROKEN, ABORTED])
def test_of_ten_at_once_one_takes_it(world: World, state: ProcessState) -> None:
    first = brought_to(world, state)
    barrier = Barrier(10)

    def take(_: int) -> str:
        barrier.wait()
        return start(world, "new_after_end")

    with ThreadPoolExecutor(10) as pool:
        (second,) = set(pool.map(take, range(10)))
    assert named(world) == [second] != [first]
    assert len(contents(world.store, "processes")) == 2


@pytest.mark.parametrize(
    ("if_exists", "what", "why", "outcome"),
    [
        ("restart", "process restart", "if_exists=restart", "1 task restarted, 1 process set running again"),
        ("new_after_end", "process abort", "was started in its place", "1 process aborted"),
    ],
)
def test_what_is_done_about_a_broken_one_is_on_record(
    world: World, if_exists: str, what: str, why: str, outcome: str
) -> None:
    first = brought_to(world, BROKEN)
    start(world, if_exists)
    (entry,) = world.store.audit_log.newest(10)
    assert (entry.what, entry.target, entry.outcome) == (what, first, outcome)
    assert why in entry.why and entry.who == who()


def test_what_a_start_changes_nothing_about_is_not_on_record(world: World) -> None:
    brought_to(world, FINISHED)
    for if_exists in ("return", "restart", "new_after_end"):
        start(world, if_exists)
    assert world.store.audit_log.newest(10) == []


def test_one_that_was_restarted_meanwhile_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = brought_to(world, BROKEN)
    end = world.store.aborts.end

    def restarted_before(*args: Any, **options: Any) -> int:
        restart_process(world.app.resources, first)
        return end(*args, **options)

    monkeypatch.setattr(world.store.aborts, "end", restarted_before)
    assert start(world, "new_after_end") == first
    assert world.bring_to_end(first).state is FINISHED
    assert named(world) == [first]


def test_a_type_that_is_disabled_is_not_started_in_anothers_place(world: World) -> None:
    first = brought_to(world, FINISHED)
    before = world.process(first)
    world.tell()
    ProcessTypeOverrides(world.app.resources).disable("order", "stocktaking")
    with pytest.raises(StartRefused):
        start(world, "new_after_end")
    assert world.process(first) == before
    assert start(world) == first


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"custom_id": NAME, "if_exists": "replace"}, "'replace': give one of return, error, restart, new_after_end"),
        ({"custom_id": NAME, "if_exists": None}, "None: give one of"),
        ({"custom_id": NAME, "if_exists": ["error"]}, "give one of"),
        ({"if_exists": "error"}, "is about the process of a custom_id; give one as well"),
    ],
)
def test_what_it_can_not_be(world: World, options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        world.start("order", **options)
    assert contents(world.store, "processes") == {}
