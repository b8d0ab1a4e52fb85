"""Snapshots of many processes at once: no more of them than may be held in memory, and all in the end."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import store as store_module
from recovery.errors import DamagedRecord
from recovery.records import Child, Decision, DecisionState, Graph, Outcome, Process, Task
from recovery.store import Store
from recovery.store.views import ranges
from tests.store.writing import put

IDS = ["p1", "p1-a", "p2", "p3", "p4"]


def process(name: str, children: int) -> list[Any]:
    """A process whose start task is finished and not applied: its graph knows nothing of the children."""
    scheduled = tuple(Child(id=f"c{n}", actor="add", args="[]") for n in range(children))
    outcome = Outcome(pass_key="a", value="1")
    return [
        Process(id=name, type="order", args="[]"),
        Task(id=f"{name}/start", actor="order", args="[]"),
        Graph(id=name),
        Decision(id=f"{name}/start", actor="order", state=DecisionState.FINISHED, outcome=outcome, children=scheduled),
    ]


@pytest.mark.parametrize(
    ("children", "pages"), [(0, [5]), (2, [2, 2, 1]), (4, [1] * 5), (9, [1] * 5)], ids=["none", "few", "many", "more"]
)
def test_what_is_not_applied_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch, children: int, pages: list[int]
) -> None:
    monkeypatch.setattr(store_module, "PORTION_TASKS", 5)
    monkeypatch.setattr(store_module, "TASK_BYTES", 10**6)  # graphs weigh nothing
    for name in IDS:
        put(store, *process(name, children))
    found = list(store.snapshot_pages(IDS))
    assert [len(page) for page in found] == pages
    whole = {snapshot.process_id: snapshot for page in found for snapshot in page}
    assert sorted(whole) == sorted(IDS)
    assert whole == {snapshot.process_id: snapshot for snapshot in store.snapshots(IDS)}


def test_of_no_process(store: Store) -> None:
    assert list(store.snapshot_pages([])) == []
    assert [snapshot.process for (snapshot,) in store.snapshot_pages(["none"])] == [None]


@pytest.mark.parametrize("children", [5, "many", [5], {"a": 1}], ids=repr)
def test_children_that_are_none_are_damage(store: Store, children: Any) -> None:
    put(store, *process("p", 0))
    spoilt = {"$set": {"children": children}}
    store.database["decisions"].update_one({"_id": "p/start"}, spoilt, bypass_document_validation=True)
    (snapshot,) = store.snapshots(["p"])
    (damage,) = snapshot.damaged
    assert (damage.record, damage.fields, damage.kind) == ("p/start", ("children",), "Decision")
    assert "start" not in snapshot.decisions
    with pytest.raises(DamagedRecord, match="p/start"):
        list(store.decisions.of_processes(["p"]))


def test_a_range_is_read_in_pages_that_weigh_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "PAGE_WEIGHT", 20)
    monkeypatch.setattr(ranges, "STEP", 2)
    for name in IDS:
        put(store, *process(name, 9))
    spoilt = {"$set": {"children": 5}}
    store.database["decisions"].update_one({"_id": "p4/start"}, spoilt, bypass_document_validation=True)
    pages = [list(store.ranges.pages(name, ranges.Range())) for name in ("decisions", "tasks")]
    assert [[len(page) for page in of_one] for of_one in pages] == [[4, 1], [5]]
