"""The version of an application is recorded with the processes that it starts and the tasks that it runs."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import Promise, Recovery
from recovery.records import Decision, Outcome, Process, from_document, to_document
from recovery.search import parse
from recovery.settings import Settings
from tests.store import single
from tests.world import World


def of_version(settings: Settings, version: str) -> World:
    """A world whose application is of this version."""
    made = World(settings, Recovery(settings, name="shop", version=version))

    @made.app.actor()
    def pack(item: str) -> str:
        return f"packed {item}"

    @made.app.actor()
    def join(parts: list[str]) -> str:
        return ",".join(parts)

    @made.app.process()
    def order(items: int) -> Promise:
        return join.schedule([pack.schedule(str(number)) for number in range(items)])

    made.tell()
    return made


@pytest.fixture
def old(emptied: Settings) -> World:
    return of_version(emptied, "1.0")


@pytest.fixture
def new(emptied: Settings) -> World:
    return of_version(emptied, "2.0")


def versions(world: World, process_id: str) -> dict[str, Any]:
    return {one.actor: one.version for one in world.decisions(process_id).values()}


@pytest.mark.parametrize("many", [False, True])
def test_who_starts_a_process_and_who_runs_its_tasks(old: World, new: World, many: bool) -> None:
    if many:
        (started,) = old.start_many("order", [(3,)])
        process_id = started.id
    else:
        process_id = old.start("order", 3)
    assert old.process(process_id).version == "1.0"
    assert versions(old, process_id) == {"order": None}
    old.take_one("order")
    new.bring_to_end(process_id)
    told = versions(new, process_id)
    assert told["order"] == "1.0"
    assert "2.0" in told.values()
    assert new.process(process_id).version == "1.0"


def test_a_late_result_is_of_the_version_that_brought_it(old: World, new: World) -> None:
    process_id = old.start("order", 1)
    store, pass_key = old.store, old.decisions(process_id)["start"].pass_key
    assert pass_key is not None
    first = single.claim(store, "order", f"{process_id}/start", pass_key, "old#1", 60)
    assert first is not None
    assert first.version == "1.0"
    (again,) = store.requeues.requeue_worker_lost([first.id], ["old#1"], "b" * 32)
    second = single.claim(new.store, "order", first.id, again.pass_key, "new#1", 60)
    assert second is not None
    assert second.version == "2.0"
    accepted = single.finish(
        store, first, Outcome(pass_key=pass_key, value="1"), (), accept_first=True, worker="old#1", apply_timeout=60
    )
    assert accepted
    assert old.decisions(process_id)["start"].version == "1.0"


def test_records_without_a_version_are_read_as_before() -> None:
    for record in (Process(id="p", type="order", args="[[],{}]"), Decision(id="p/start", actor="order")):
        document = to_document(record)
        assert "version" not in document
        assert from_document(type(record), document).version is None


def test_it_is_found_by_who_started_it_and_by_who_ran_it(old: World, new: World) -> None:
    first, second, third = old.start("order", 0), old.start("order", 0), new.start("order", 0)
    old.take_one("order")  # of the first
    new.pump()
    new.store.catch_up(10)
    now = new.store.now()

    def found(text: str) -> list[str]:
        return new.store.search.page(parse(text, now), None, 10)

    assert found("version:1.0") == [first, second]
    assert found("version:2.0") == [second, third]
    assert found("version:1.* version:2.0") == [second]
    assert found("version:3*") == []
