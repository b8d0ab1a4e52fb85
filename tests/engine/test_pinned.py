"""A pinned process runs only on workers of the version that started it, or of one that declares it compatible."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import Promise, Recovery
from recovery.engine.run.refusing import delay_between
from recovery.errors import InputError
from recovery.health.process_check import look, repair
from recovery.records import ProcessState, Worker
from recovery.rules import Rule
from recovery.settings import Settings, load
from tests.waiting import wait_until
from tests.world import World

ACTORS = ("order", "pack", "join", "free")


def of_version(settings: Settings, version: str, ran: list[str], **options: Any) -> World:
    """A world whose application is of this version, and notes what it runs."""
    made = World(settings, Recovery(settings, name="shop", version=version, **options))

    @made.app.actor()
    def pack(item: str) -> str:
        ran.append(version)
        return f"packed {item}"

    @made.app.actor()
    def join(parts: list[str]) -> str:
        ran.append(version)
        return ",".join(parts)

    @made.app.process(versions="same")
    def order(items: int) -> Promise:
        ran.append(version)
        return join.schedule([pack.schedule(str(number)) for number in range(items)])

    @made.app.process()
    def free(item: str) -> Promise:
        ran.append(version)
        return pack.schedule(item)

    made.tell()
    return made


@pytest.fixture
def ran() -> list[str]:
    """The versions that ran tasks, in order."""
    return []


@pytest.fixture
def old(emptied: Settings, ran: list[str]) -> World:
    return of_version(emptied, "1.0", ran)


@pytest.fixture
def new(emptied: Settings, ran: list[str]) -> World:
    return of_version(emptied, "2.0", ran)


def lives(world: World, name: str = "w") -> None:
    """Have a worker of this world's application live."""
    app = world.app
    world.store.workers.beat(
        Worker(
            id=name, name=name, host="", pid=1, pid_started=1, queues=ACTORS, application="shop",
            application_version=app.version, compatible_with=tuple(app.compatible_with),
        ),
        60,
    )  # fmt: skip


def start_task(world: World, process_id: str) -> Any:
    return world.decisions(process_id)["start"]


@pytest.mark.parametrize("many", [False, True])
def test_another_version_gives_its_tasks_back_and_its_own_runs_all(
    old: World, new: World, ran: list[str], many: bool
) -> None:
    if many:
        (started,) = old.start_many("order", [(3,)])
        process_id = started.id
    else:
        process_id = old.start("order", 3)
    process = old.process(process_id)
    assert (process.version, process.pinned) == ("1.0", True)
    lives(old)
    new.pump()
    given_back = start_task(new, process_id)
    assert (given_back.state.value, given_back.attempts, given_back.version, given_back.timeouts) == (
        "delayed", 0, None, 0,
    )  # fmt: skip
    assert given_back.waits_for_pinned_version
    assert ran == []
    wait_until(lambda: old.scan() is None and old.pump() > 0, 10, "it is queued again")
    ended = old.bring_to_end(process_id)
    assert (ended.state, ended.result) == (ProcessState.FINISHED, '"packed 0,packed 1,packed 2"')
    assert {one.pinned_to for one in old.decisions(process_id).values()} == {"1.0"}
    assert set(ran) == {"1.0"}


def test_a_task_in_the_middle_is_pinned_as_well(old: World, new: World, ran: list[str]) -> None:
    process_id = old.start("order", 2)
    lives(old)
    old.pump(serve={"order": old.app.actors["order"]})
    assert ran == ["1.0"]
    new.pump()
    new.pump()
    assert ran == ["1.0"]
    states = {one.actor: one.state.value for one in old.decisions(process_id).values()}
    assert states == {"order": "finished", "pack": "delayed", "join": "waiting"}


def test_a_version_that_declares_itself_compatible_runs_them(emptied: Settings, old: World, ran: list[str]) -> None:
    process_id = old.start("order", 2)
    newer = of_version(emptied, "1.1", ran, compatible_with=["0.9", "1.0"])
    newer.bring_to_end(process_id)
    assert set(ran) == {"1.1"}
    decisions = newer.decisions(process_id).values()
    assert {(one.pinned_to, one.version) for one in decisions} == {("1.0", "1.1")}, "the pin stays"


def test_what_is_not_pinned_runs_anywhere(old: World, new: World, ran: list[str]) -> None:
    process_id = old.start("free", "tea")
    assert old.process(process_id).pinned is None
    new.bring_to_end(process_id)
    assert set(ran) == {"2.0"}
    assert {one.pinned_to for one in new.decisions(process_id).values()} == {None}


def test_without_an_able_worker_it_waits_longer_each_time_and_never_fails(
    emptied: Settings, old: World, ran: list[str]
) -> None:
    new = of_version(emptied.model_copy(update={"version_grace": 0.0}), "2.0", ran)
    process_id = old.start("order", 1)
    lives(new)
    for refusals in (1, 2, 3):
        task = start_task(old, process_id)
        if task.state.value == "delayed":
            new.store.database["decisions"].update_one(
                {"_id": task.id}, [{"$set": {"recoveryTime": "$$NOW", "eta": "$$NOW"}}]
            )
            new.scan()
        new.pump()
        task = start_task(old, process_id)
        assert (task.state.value, task.refused.count, task.attempts) == ("delayed", refusals, 0)
        wait = (task.eta - old.store.now()).total_seconds()
        assert 2 ** (refusals - 1) - 1 < wait <= 2 ** (refusals - 1)
    assert old.process(process_id).state is ProcessState.RUNNING
    lives(old)
    new.store.database["decisions"].update_one({"_id": task.id}, [{"$set": {"recoveryTime": "$$NOW", "eta": "$$NOW"}}])
    new.scan()
    new.pump()
    soon = (start_task(old, process_id).eta - old.store.now()).total_seconds()
    assert soon <= 1, "now there is one"


def test_with_an_able_worker_each_that_is_idle_gets_it_before_it_waits() -> None:
    delays = [delay_between(refusals, workers=3) for refusals in range(1, 13)]
    assert delays == [0, 0, 0, 0.5, 0, 0, 0, 1, 0, 0, 0, 2]
    assert [delay_between(round_ * 2, workers=1) for round_ in (5, 6, 7, 8, 9000)] == [8, 16, 30, 30, 30]


def test_a_process_that_is_registered_again_is_still_pinned(old: World, new: World) -> None:
    """As after a start that was cut off: from the Process record alone."""
    process_id = old.start("order", 1)
    for name in ("decisions", "tasks", "graphs"):
        old.store.database[name].delete_many({})
    long_ago = {"$subtract": ["$$NOW", 3_600_000]}
    fields = {"startedAt": long_ago, "recoveryTime": long_ago}
    old.store.database["processes"].update_one({"_id": process_id}, [{"$set": fields}])
    done, _ = repair(new.app.resources, look(new.app.resources, process_id))
    assert done == {Rule.START_NOT_REGISTERED: 1}
    assert start_task(new, process_id).pinned_to == "1.0"


@pytest.mark.parametrize(("kind", "pin"), [("order", "1.0"), ("free", None)])
def test_a_damaged_pin_is_that_of_the_process(old: World, kind: str, pin: Any) -> None:
    process_id = old.start(kind, 0)
    decisions = old.store.database["decisions"]
    decisions.update_one({}, {"$set": {"pinnedTo": 7}}, bypass_document_validation=True)
    old.store.catch_up(10)
    done, _ = repair(old.app.resources, look(old.app.resources, process_id))
    assert done == {Rule.RECORD_DAMAGED: 1}
    assert start_task(old, process_id).pinned_to == pin
    old.bring_to_end(process_id)
    assert old.process(process_id).state is ProcessState.FINISHED


def test_a_damaged_pin_stays_if_the_process_does_not_say_which_version(old: World) -> None:
    process_id = old.start("order", 0)
    old.store.database["processes"].update_one({}, {"$unset": {"version": ""}})
    damaged = {"$set": {"pinnedTo": 7}}
    old.store.database["decisions"].update_one({}, damaged, bypass_document_validation=True)
    old.store.catch_up(10)
    done, left = repair(old.app.resources, look(old.app.resources, process_id))
    assert done == {} and [one.rule for one in left.findings] == [Rule.RECORD_DAMAGED]


@pytest.mark.parametrize("given", ["1.0", 7, None, ["1 0"], [None]])
def test_what_are_no_versions_to_be_compatible_with_is_refused(given: Any) -> None:
    with pytest.raises(InputError, match=r"Recovery\(compatible_with="):
        Recovery(load(), compatible_with=given)


@pytest.mark.parametrize("given", ["newest", True, 1, None])
def test_what_versions_can_not_be_is_refused(given: Any) -> None:
    app = Recovery(load())
    with pytest.raises(InputError, match="process type order: versions must be 'any' or 'same'"):
        app.process("order", versions=given)(lambda: None)
