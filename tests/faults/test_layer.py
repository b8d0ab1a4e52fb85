"""The fault layer does what it says, and nothing where nothing is planned."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from recovery.errors import StoreUnavailable
from recovery.queue import Broker
from recovery.records import Child, Decision, Graph, Outcome, Task
from recovery.settings import Settings
from recovery.store import Finished, Queued, Store
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.faults import Course, Died, Fault, Kind, Plan, installed, reach, under
from tests.faults.layer import steps
from tests.store import single
from tests.store.writing import put

TASKS = [Task(id=f"p/{n}", actor="a", args="[[],{}]") for n in range(4)]


@pytest.fixture
def store(emptied: Settings) -> Iterator[Store]:
    with installed():
        yield Store(emptied)


def there(store: Store) -> int:
    return store.database["tasks"].count_documents({})


def test_all_collections_are_wrapped() -> None:
    assert len(steps()) > 50
    assert {
        "Store.now",
        "Processes.insert",
        "Decisions.finish",
        "Requeues.enqueue_ready",
        "Queues.polled",
    } <= steps().keys()


@pytest.mark.parametrize(
    ("kind", "error", "left"),
    [
        (Kind.BEFORE, StoreUnavailable, 0),
        (Kind.AFTER, StoreUnavailable, 4),
        (Kind.HALF, StoreUnavailable, 2),
        (Kind.DIES, Died, 0),
        (Kind.DIES_AFTER, Died, 4),
        (Kind.DIES_HALF, Died, 2),
    ],
)
def test_a_fault(store: Store, kind: Kind, error: type[BaseException], left: int) -> None:
    with under(Plan(Fault(kind))) as plan, pytest.raises(error, match=r"Tasks\.insert"):
        store.tasks.insert(TASKS)
    assert (there(store), plan.told) == (left, [f"Tasks.insert: {kind}"])
    assert store.tasks.insert(TASKS) == 4 - left, "only under the plan"


def test_only_the_step_that_is_named_and_only_once(store: Store) -> None:
    with under(Plan(Fault(Kind.BEFORE, 1, "Tasks.get"))):
        store.tasks.insert(TASKS)
        assert store.tasks.get("p/1") == TASKS[1]
        with pytest.raises(StoreUnavailable):
            store.tasks.get("p/1")
        assert store.tasks.get("p/1") == TASKS[1]


def test_away_is_for_good_and_for_all_steps(store: Store) -> None:
    with under(Plan(Fault(Kind.AWAY, 1))):
        assert store.tasks.get("p/1") is None
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                store.now()
        reach("Actor.body")


def test_nothing_of_ours_catches_a_death() -> None:
    assert not issubclass(Died, Exception)


def test_a_course_stops_and_goes_on(store: Store) -> None:
    plan = Plan(Fault(Kind.PAUSE, 0, "Tasks.insert"), Fault(Kind.PAUSE_AFTER, 0, "Tasks.insert"))
    course = Course(lambda: store.tasks.insert(TASKS), plan)
    seen: list[Any] = []
    while not course.go():
        seen.append((course.at, there(store)))
    assert (seen, course.result) == ([("Tasks.insert", 0), ("Tasks.insert", 4)], 4)


def test_a_batch_stops_half_way_and_goes_on(store: Store) -> None:
    course = Course(lambda: store.tasks.insert(TASKS), Plan(Fault(Kind.PAUSE_HALF)))
    assert not course.go()
    assert (there(store), course.finish(), there(store)) == (2, 4, 4)


def applied(store: Store) -> list[bool]:
    """Whether the task of each of two processes is applied."""
    return [document["finished"] == ["t"] for document in store.database["graphs"].find().sort("_id", 1)]


def apply_two(store: Store) -> Callable[[], set[str]]:
    """A step that applies to two graphs, in one bulk of two writes: those that are applied then."""
    now = store.now()
    # They wait for another task each, so that their updates differ.
    put(store, *(Graph(id=key, not_finished={"t": now, key: now}, recovery_time=now) for key in ("p1", "p2")))
    ended = {key: (0, [Finished("t", {}, [key])]) for key in ("p1", "p2")}
    return lambda: set(store.graphs.apply(ended))


@pytest.mark.parametrize(("kind", "error"), [(Kind.HALF, StoreUnavailable), (Kind.DIES_HALF, Died)])
def test_the_first_write_of_a_bulk_is_done_and_the_second_is_not(
    store: Store, kind: Kind, error: type[BaseException]
) -> None:
    step = apply_two(store)
    with under(Plan(Fault(kind))), pytest.raises(error):
        step()
    assert applied(store) == [True, False]
    assert step() == {"p1", "p2"}


def test_between_the_writes_of_a_bulk_others_write(store: Store) -> None:
    course = Course(apply_two(store), Plan(Fault(Kind.PAUSE_HALF)))
    assert not course.go()
    assert applied(store) == [True, False]
    assert (course.finish(), applied(store)) == ({"p1", "p2"}, [True, True])


def test_what_got_between_the_writes_of_a_bulk_wins(store: Store) -> None:
    course = Course(apply_two(store), Plan(Fault(Kind.PAUSE_HALF)))
    assert not course.go()
    store.database["graphs"].update_one({"_id": "p2"}, {"$set": {"epoch": 1}})
    assert (course.finish(), applied(store)) == ({"p1"}, [True, False])


def test_what_is_one_write_has_no_half(store: Store) -> None:
    """A finish with its children is done, and the connection lost: never a decision with half of them."""
    store.decisions.insert([Decision(id="p/1", actor="a")])
    claimed = single.claim_ready(store, "a", "p/1", 0, "one", "w#1", 60.0)
    assert claimed is not None
    children = [Child(id=str(n), actor="a", args="[[],{}]") for n in range(4)]
    options: Any = {"accept_first": True, "worker": "w#1", "apply_timeout": 60.0}
    with under(Plan(Fault(Kind.HALF))), pytest.raises(StoreUnavailable):
        single.finish(store, claimed, Outcome(pass_key="one", value="1"), children, **options)
    (document,) = store.database["decisions"].find()
    assert (document["state"], len(document["children"])) == ("finished", 4)


def test_a_course_dies_where_it_stands(store: Store) -> None:
    course = Course(lambda: store.tasks.insert(TASKS), Plan(Fault(Kind.PAUSE)))
    course.go()
    course.die()
    assert isinstance(course.error, Died)
    assert there(store) == 0


def test_a_push_that_fails_is_told_by_the_broker(store: Store, emptied: Settings) -> None:
    queued = Queued("p/1", "a", "pass", store.now())
    broker = Broker(emptied.broker_url)
    with under(Plan(Fault(Kind.BEFORE), Fault(Kind.BEFORE, 1))):
        assert broker.push([queued]) == 0, "it is tried twice"
    with under(Plan(Fault(Kind.AFTER), Fault(Kind.BEFORE, 1))):
        assert broker.push([queued]) == 0
    assert broker.depths(["a"]) == {"a": 1}, "it was pushed, and its reply lost"


def test_a_kill_is_one(store: Store, emptied: Settings) -> None:
    child = os.fork()
    if child == 0:
        with under(Plan(Fault(Kind.KILL_AFTER))):
            Store(emptied).tasks.insert(TASKS)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert there(store) == 4


def test_a_seed_draws_the_same_plan() -> None:
    kinds = list(Kind)
    assert Plan.seeded(7, kinds).faults == Plan.seeded(7, kinds).faults
    assert len({Plan.seeded(seed, kinds).faults for seed in range(20)}) > 10
