"""The skeleton of all scanners: it ends, it tells what it did, and it does not raise for servers that are away."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

import pytest

from recovery import Recovery
from recovery.records import Decision, DecisionState
from recovery.rules import Finding, Rule, Surroundings
from recovery.scan import Scanner, ScanResult
from recovery.scan.scanner import Page
from recovery.settings import Settings
from recovery.stack.server_process import free_port
from recovery.store.views.overview import time_limit
from tests.queues import polled_and_empty
from tests.scan.making import DAY, SCANNERS, overdue, process_of, scanner, start_of
from tests.store.writing import put
from tests.world import World


class Counting(Scanner[int]):
    """Looks at numbers, and finds nothing wrong with them."""

    name = "numbers"
    page = 3

    def __init__(self, world: World, pages: Sequence[Sequence[int]]) -> None:
        super().__init__(world.app.resources, world.app.outbox)
        self.pages, self.settled = list(pages), list[int]()

    def find(self) -> Page[int]:
        return Page(self.pages.pop(0))

    def key(self, item: int) -> str:
        return str(item)

    def judge(self, page: Sequence[int]) -> tuple[list[Finding], Surroundings]:
        assert page, "an empty page needs no judgement"
        return [], Surroundings(now=self.resources.store.now())

    def postpone_healthy(self, page: Sequence[int]) -> None:
        self.settled += page


@pytest.mark.parametrize(
    ("pages", "looked_at"),
    [
        ([[]], 0),
        ([[1, 2]], 2),
        ([[1, 2, 3], []], 3),
        ([[1, 2, 3], [4, 5, 6], [7]], 7),
        ([[1, 2, 3], [3, 4, 5], [3, 4, 6], []], 9),
    ],
)
def test_it_goes_on_while_pages_are_full(world: World, pages: list[list[int]], looked_at: int) -> None:
    counting = Counting(world, pages)
    result = counting.run_once()
    assert (result.scanner, result.looked_at, result.repaired, result.error) == ("numbers", looked_at, Counter(), None)
    assert counting.pages == []
    assert len(counting.settled) == looked_at


def test_it_ends_when_a_page_brings_the_same_and_nothing_helps(world: World, caplog: pytest.LogCaptureFixture) -> None:
    counting = Counting(world, [[1, 2, 3], [4, 5, 6], [6, 5, 4], [7]])
    assert counting.run_once().looked_at == 9
    assert "numbers scan: 3 overdue records can't be repaired, first 4" in caplog.text


def test_it_ends_as_well_where_it_looks_at_both_ends_by_turns(world: World) -> None:
    assert Counting(world, [[1, 2, 3], [7, 8, 9], [3, 2, 1], [7]]).run_once().looked_at == 9


def test_it_ends_after_a_while_and_tells_that_there_is_more(world: World) -> None:
    counting = Counting(world, [[1, 2, 3], [4, 5, 6], [7]])
    first, second, third = (counting.run_once(0.0) for _ in range(3))
    assert [(r.looked_at, r.more) for r in (first, second, third)] == [(3, True), (3, True), (1, False)]


def test_slow_pages_that_nothing_helps_are_told_and_not_looked_at_for_ever(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """Each run ends for its time, and the next begins at once: so it has to know what the last one looked at."""
    counting = Counting(world, [[1, 2, 3], [7, 8, 9], [3, 2, 1], [1, 2, 3], [7]])
    runs = [counting.run_once(0.0) for _ in range(3)]
    assert [r.more for r in runs] == [True, True, False]
    assert "numbers scan: 3 overdue records can't be repaired, first 1" in caplog.text
    assert counting.run_once(0.0).more, "with the next nudge it begins anew"
    assert not counting.run_once(0.0).more


@pytest.mark.parametrize("name", SCANNERS)
def test_nothing_to_do(world: World, name: str) -> None:
    result = scanner(world, name).run_once()
    assert result == ScanResult(name, seconds=result.seconds)


@pytest.mark.parametrize("name", SCANNERS)
def test_a_database_that_is_away(emptied: Settings, name: str, caplog: pytest.LogCaptureFixture) -> None:
    away = emptied.model_copy(update={"mongo_uri": f"mongodb://127.0.0.1:{free_port()}"})
    world = World(emptied, Recovery(away))
    with caplog.at_level(logging.WARNING), time_limit(0.2):
        result = SCANNERS[name](world).run_once()
    assert result.error is not None
    assert (result.scanner, result.looked_at) == (name, 0)
    assert "Timeout" in result.error or "Selection" in result.error
    assert f"{name} scan cut off" in caplog.text


def test_a_redis_that_is_away_does_not_hold_up_the_records(emptied: Settings) -> None:
    """The messages are lost; that they are is found out when Redis is back."""
    away = emptied.model_copy(update={"broker_url": f"redis://127.0.0.1:{free_port()}/0"})
    world = World(emptied, Recovery(away))
    overdue(world, DecisionState.WORKING, 3)
    past = world.store.now() - DAY
    put(
        world.store,
        Decision(
            id="q/start", actor="add", state=DecisionState.QUEUED, pass_key="old", queued_at=past, recovery_time=past
        ),
    )
    world.store.queues.polled({"add": None})
    result = scanner(world, "decisions").run_once()
    assert result.error is None
    assert (result.looked_at, result.repaired) == (4, {Rule.WORK_TIMEOUT: 3})
    found = world.store.decisions.get("q/start")
    assert found is not None
    assert found.pass_key == "old", "of a queue that can't be asked nothing is concluded"


@pytest.mark.parametrize("name", ["decisions", "graphs", "processes"])
def test_whoever_fills_an_empty_queue_has_told_that_it_was_empty(world: World, name: str) -> None:
    """Else the others would take what is lost for what lags."""
    world.app.process("add")(lambda: "added")
    overdue(world, DecisionState.QUEUED, 2)
    past = world.store.now() - DAY
    for collection in ("graphs", "processes"):
        world.store.database[collection].update_one({"_id": process_of(0)}, {"$set": {"recoveryTime": past}})
    # It lost its message too often to be looked at before its deadline.
    later = {"recoveryTime": past + DAY * 1.0001, "losses": 9}
    world.store.database["decisions"].update_one({"_id": start_of(1)}, {"$set": later})
    polled_and_empty(world.store, "add")
    assert scanner(world, name).run_once().repaired == {Rule.MESSAGE_LOST: 1}
    world.store.database["decisions"].update_one({"_id": start_of(1)}, {"$set": {"recoveryTime": past}})
    assert world.redis.llen("add") == 1
    assert scanner(world, "decisions").run_once().repaired == {Rule.MESSAGE_LOST: 1}


@pytest.mark.parametrize("polled", [True, False])
def test_an_empty_queue_that_nobody_polls_is_no_news(world: World, polled: bool) -> None:
    world.app.process("add")(lambda: "added")
    overdue(world, DecisionState.WORKING)
    if polled:
        world.store.queues.polled({"add": None})
    assert scanner(world, "decisions").run_once().repaired == {Rule.WORK_TIMEOUT: 1}
    told = world.store.queues.all().get("add")
    assert (told is not None and told.seen_empty_at is not None) == polled


@pytest.mark.parametrize("name", ["decisions", "processes"])
def test_indexes_that_somebody_dropped_are_made_again(world: World, name: str) -> None:
    """With the whole collection, say: the next insert makes it again, with neither indexes nor validator."""
    (made,) = overdue(world, DecisionState.WORKING)
    collection = world.store.database[name]
    kept = collection.find().to_list()
    collection.drop()
    collection.insert_many(kept)
    result = scanner(world, name).run_once()
    assert result.error is not None
    assert {"_id_", "deadline", "deadlineMissing"} <= set(collection.index_information())
    assert collection.options()["validator"]
    assert scanner(world, name).run_once().error is None
    scanner(world, "decisions").run_once()
    assert world.decisions(made.process_id)["start"].state is DecisionState.QUEUED
