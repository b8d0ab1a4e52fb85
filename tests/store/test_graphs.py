"""The one update that applies finished tasks: once, in its epoch, and with what became ready worked out right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.records import Graph, RepairNote
from recovery.store import Finished, GraphView, Store
from recovery.store.lifecycle import graphs
from tests.examples import examples
from tests.store import single
from tests.store.writing import contents, is_about, is_close, put

DAY = timedelta(days=1)


def graph(store: Store, *open_tasks: str, **fields: object) -> Graph:
    """Save and return a process's graph in which these tasks are open."""
    began = store.now() - DAY
    made = Graph(
        id="p", not_finished=dict.fromkeys(open_tasks, began), idle_timeout=30, touched_at=began, recovery_time=began
    ).evolve(**fields)
    put(store, made)
    return made


def there(store: Store) -> Graph:
    found = store.graphs.get("p")
    assert found is not None
    return found


@pytest.fixture(autouse=True, params=[0, graphs.FEW], ids=["many", "few"])
def asked_as_of(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ready is asked for in two ways, which say the same."""
    monkeypatch.setattr(graphs, "FEW", request.param)


def test_children_and_links(store: Store) -> None:
    graph(store, "start")
    children: dict[str, tuple[str, ...]] = {"a": (), "b": (), "sum": ("a", "b"), "last": ("sum",)}
    view = single.apply(store, "p", 0, [Finished("start", children, ())])
    assert view is not None
    assert (view.ready, view.complete, view.applied, view.registered) == (("a", "b"), False, True, True)
    found = there(store)
    assert set(found.not_finished) == set(children)
    assert found.links == {"sum": {"a": True, "b": True}, "last": {"sum": True}}
    assert (found.finished, found.version) == (("start",), 1)
    assert is_close(found.touched_at, store.now())
    assert is_close(found.recovery_time, store.now() + timedelta(seconds=30))


def test_a_dependent_is_ready_with_its_last_dependency(store: Store) -> None:
    graph(store, "a", "b", "sum", links={"sum": {"a": True, "b": True}})
    first = single.apply(store, "p", 0, [Finished("a", {}, ["sum"])])
    second = single.apply(store, "p", 0, [Finished("b", {}, ["sum"])])
    assert first is not None
    assert second is not None
    assert (first.ready, second.ready) == ((), ("sum",))
    assert not second.complete


def test_a_promised_child_takes_its_parents_place(store: Store) -> None:
    """Who waits for a task whose value is a child's value waits for the child from then on."""
    graph(store, "part", "other", "sum", links={"sum": {"part": True, "other": True}})
    view = single.apply(store, "p", 0, [Finished("part", {"c1": (), "c2": ("c1",)}, ["sum"], waits=("c2",))])
    assert view is not None
    assert view.ready == ("c1",)
    assert there(store).links == {"sum": {"other": True, "c2": True}, "c2": {"c1": True}}
    for task, dependents in (("other", ["sum"]), ("c1", ["c2"])):
        view = single.apply(store, "p", 0, [Finished(task, {}, dependents)])
    assert view is not None
    assert view.ready == ("c2",)
    view = single.apply(store, "p", 0, [Finished("c2", {}, ["sum"])])
    assert view is not None
    assert view.ready == ("sum",)


def test_applied_twice_changes_nothing(store: Store) -> None:
    graph(store, "start")
    finished = Finished("start", {"a": (), "b": ("a",)}, ())
    assert single.apply(store, "p", 0, [finished])
    before = contents(store, "graphs")
    assert single.apply(store, "p", 0, [finished]) is None
    assert contents(store, "graphs") == before
    view = store.graphs.view("p", [finished])
    assert view is not None
    assert (view.applied, view.registered, view.ready, view.epoch) == (True, True, ("a",), 0)


@pytest.mark.parametrize(
    ("epoch", "finished"),
    [
        (1, [Finished("a", {}, ())]),
        (0, [Finished("unknown", {}, ())]),
        (0, [Finished("a", {}, ()), Finished("done", {}, ())]),
    ],
    ids=["another epoch", "a task that its parent has not registered", "one of a batch is not open"],
)
def test_the_guard(store: Store, epoch: int, finished: list[Finished]) -> None:
    graph(store, "a", finished=("done",))
    before = contents(store, "graphs")
    assert single.apply(store, "p", epoch, finished) is None
    assert single.apply(store, "none", 0, finished) is None
    assert contents(store, "graphs") == before


def test_view_tells_what_is_not_registered(store: Store) -> None:
    graph(store, "a")
    open_view, unknown = (store.graphs.view("p", [Finished(task, {}, ())]) for task in ("a", "unknown"))
    assert open_view is not None
    assert unknown is not None
    assert (open_view.registered, open_view.applied) == (True, False)
    assert (unknown.registered, unknown.applied) == (False, False)
    assert store.graphs.view("none", [Finished("a", {}, ())]) is None


def test_several_finished_in_one_update(store: Store) -> None:
    parts = [f"part{n}" for n in range(5)]
    graph(store, *parts, "sum", "left", links={"sum": dict.fromkeys(parts, True), "left": {"part0": True, "x": True}})
    one_by_one = [Finished(part, {}, ["sum", "left"] if part == "part0" else ["sum"]) for part in parts]
    view = single.apply(store, "p", 0, one_by_one)
    assert view is not None
    assert (view.ready, view.complete) == (("sum",), False)
    found = there(store)
    assert set(found.not_finished) == {"sum", "left"}
    assert found.finished == tuple(parts)
    assert found.links == {"sum": {}, "left": {"x": True}}
    assert (found.is_ready("sum"), found.is_ready("left"), found.is_ready("part0")) == (True, False, False)


def test_the_last_one_completes_it(store: Store) -> None:
    graph(store, "a", "b")
    first = single.apply(store, "p", 0, [Finished("a", {}, ())])
    last = single.apply(store, "p", 0, [Finished("b", {}, ())])
    assert first is not None
    assert last is not None
    assert (first.complete, last.complete) == (False, True)
    assert there(store).recovery_time is not None, "it rests when its process has ended, not before"
    assert store.graphs.clear_deadlines(["p"]) == 1
    assert there(store).recovery_time is None


def test_names_that_are_no_expressions(store: Store) -> None:
    """Ids go into the update as texts, whatever they look like."""
    graph(store, "start")
    assert single.apply(store, "p", 0, [Finished("start", {"b2": ("NOW", "ROOT")}, ())])
    assert there(store).links == {"b2": {"NOW": True, "ROOT": True}}


@pytest.mark.parametrize(("epoch", "task", "known"), [(0, "a", True), (1, "a", False), (0, "b", False)])
def test_fail_leaves_the_task_open(store: Store, epoch: int, task: str, known: bool) -> None:
    graph(store, "a", "sum", links={"sum": {"a": True}})
    before = contents(store, "graphs")
    assert store.graphs.fail("p", epoch, task) is known
    if not known:
        assert contents(store, "graphs") == before
        return
    found = there(store)
    assert (found.failed, set(found.not_finished), found.links) == ({"a": True}, {"a", "sum"}, {"sum": {"a": True}})
    assert is_close(found.recovery_time, store.now() + timedelta(seconds=30))
    assert store.graphs.clear_deadlines(["p"]) == 1


@pytest.mark.parametrize("restarts", [None, 1])
def test_a_failure_of_an_earlier_life_is_not_noted(store: Store, restarts: int | None) -> None:
    graph(store, "a", restarted={"a": 2})
    before = contents(store, "graphs")
    assert not store.graphs.fail("p", 0, "a", restarts)
    assert contents(store, "graphs") == before
    assert store.graphs.fail("p", 0, "a", 2)


CHANGES_OF_WHAT_WAS_SEEN: dict[str, Callable[[Store, Graph], bool]] = {
    "give_up": lambda store, seen: store.graphs.fail_seen(seen, "b"),
    "reopen": lambda store, seen: store.graphs.reopen(seen, {"done": ["b"]}),
    "relink": lambda store, seen: store.graphs.relink(seen, {"b": ["a"]}),
}


@pytest.mark.parametrize("name", CHANGES_OF_WHAT_WAS_SEEN)
@pytest.mark.parametrize("since", ["version", "epoch"])
def test_what_is_not_as_it_was_seen_is_left_alone(store: Store, name: str, since: str) -> None:
    """An apply makes another version; an abort another epoch, and of what was aborted nothing changes any more."""
    seen = graph(store, "a", "b", links={"b": {"done": True}}, finished=("done",))
    store.database["graphs"].update_one({"_id": "p"}, {"$inc": {since: 1}})
    before = contents(store, "graphs")
    assert not CHANGES_OF_WHAT_WAS_SEEN[name](store, seen)
    assert contents(store, "graphs") == before
    assert CHANGES_OF_WHAT_WAS_SEEN[name](store, there(store))
    assert contents(store, "graphs") != before


def test_an_open_graph_does_not_rest(store: Store) -> None:
    graph(store, "a")
    assert store.graphs.clear_deadlines(["p", "none"]) == 0
    assert there(store).recovery_time is not None


def test_a_repair_wakes_nothing_that_rests(store: Store) -> None:
    graph(store, "a")
    graph(store, id="q", recovery_time=None)
    before = there(store).recovery_time
    note = RepairNote(rule="WORK_TIMEOUT", source="auto", worker="w")
    store.graphs.note_repair(["p", "q"], note, touch=False)
    assert there(store).recovery_time == before
    store.graphs.note_repair(["p", "q"], note, touch=True)
    assert is_close(there(store).recovery_time, store.now() + timedelta(seconds=30))
    assert store.graphs.get_many(["q"])["q"].recovery_time is None


@pytest.mark.parametrize(("idle", "later"), [(0, 30), (10, 30), (3600, 3600)])
def test_looks_grow_rare(store: Store, idle: float, later: float) -> None:
    """A healthy graph is looked at again when it has been idle for twice as long."""
    graph(store, "a", touched_at=store.now() - timedelta(seconds=idle))
    assert store.graphs.postpone_idle(["p"]) == 1
    assert is_about(there(store).recovery_time, store.now(), later)
    assert store.graphs.postpone_idle(["p"]) == 0, "it is not overdue any more"


def test_the_first_graph_stays(store: Store) -> None:
    made = graph(store, "a")
    store.graphs.insert([made.evolve(not_finished={})])
    assert set(there(store).not_finished) == {"a"}


PLANS = st.lists(st.sets(st.integers(0, 7)), min_size=1, max_size=8)


def by_itself(store: Store, finished: list[Finished]) -> GraphView | None:
    return single.apply(store, "p", 0, finished)


def with_others(store: Store, finished: list[Finished]) -> GraphView | None:
    """Which are of another epoch, or not there."""
    before = contents(store, "graphs")["another"]
    views = store.graphs.apply({"another": (0, finished), "p": (0, finished), "none": (0, finished)})
    assert contents(store, "graphs")["another"] == before
    assert views.keys() == {"p"}
    asked = store.graphs.view("p", finished)
    assert views["p"] == asked, "as the server works it out"
    return asked


@pytest.mark.parametrize("apply", [by_itself, with_others])
@given(plan=PLANS, together=st.integers(1, 4), data=st.data())
@examples(15)
def test_any_order_and_any_batches_end_complete(
    store: Store,
    apply: Callable[[Store, list[Finished]], GraphView | None],
    plan: list[set[int]],
    together: int,
    data: st.DataObject,
) -> None:
    """Tasks with any dependencies on earlier ones: each is told ready once, after its dependencies, and all end."""
    deps = {f"t{n}": tuple(f"t{dep}" for dep in sorted(some) if dep < n) for n, some in enumerate(plan)}
    store.database["graphs"].delete_many({})
    graph(store, "start")
    graph(store, "start", id="another", epoch=1)
    view = apply(store, [Finished("start", deps, ())])
    assert view is not None
    ready, done = list(view.ready), set[str]()
    told = list(ready)
    while ready:
        batch = [ready.pop(data.draw(st.integers(0, len(ready) - 1))) for _ in range(min(together, len(ready)))]
        finished = [Finished(task, {}, [other for other in deps if task in deps[other]]) for task in batch]
        view = apply(store, finished)
        assert view is not None
        done |= set(batch)
        assert all(set(deps[task]) <= done for task in view.ready)
        ready += view.ready
        told += view.ready
    assert sorted(told) == sorted(deps)
    assert view.complete
    assert sorted(there(store).finished) == sorted(["start", *deps])


@pytest.mark.parametrize("fields", [{"epoch": 1}, {"not_finished": {}}, {"finished": ("b",)}], ids=str)
def test_of_several_what_is_not_as_it_should_be_is_left_as_it_is(store: Store, fields: dict[str, object]) -> None:
    """Another epoch, or one of its tasks is not open: whoever has it applies it by itself."""
    graph(store, id="q", not_finished={"a": store.now(), "b": store.now()})
    graph(store, "a", **fields)
    before = contents(store, "graphs")["p"]
    both = [Finished("a", {}, ()), Finished("b", {}, ())]
    assert store.graphs.apply({"p": (0, both), "q": (0, both)}).keys() == {"q"}
    assert contents(store, "graphs")["p"] == before


def test_of_several_one_that_was_applied_is_told_as_it_is(store: Store) -> None:
    graph(store, "a", finished=("b",))
    before = contents(store, "graphs")
    ended = (0, [Finished("b", {"c": ()}, ())])
    view = store.graphs.apply({"p": ended, "none": ended})["p"]
    assert contents(store, "graphs") == before
    assert (view.applied, view.ready, view.complete) == (True, ("c",), False)


def test_of_several_one_that_is_large_or_spoilt_holds_up_no_other(store: Store) -> None:
    """The large one is written, and not read."""
    graph(store, id="large", not_finished={"a": store.now()} | {f"t{n}": store.now() for n in range(5_000)})
    graph(store, id="q", not_finished={"a": store.now()})
    graph(store, "a")
    spoilt = {"q": {"_id": "p"}, "u": {"$set": {"finished": 3}}}
    store.database.command("update", "graphs", updates=[spoilt], bypassDocumentValidation=True)
    ended = [Finished("a", {}, ())]
    views = store.graphs.apply({"p": (0, ended), "large": (0, ended), "q": (0, ended)})
    assert views.keys() == {"q"}
    assert contents(store, "graphs")["large"]["finished"] == ["a"]
