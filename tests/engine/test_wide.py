"""A fan-out costs what its tasks do, however many they are: comparisons are counted here, not seconds."""

from __future__ import annotations

import pytest

from recovery.engine.apply.apply import _ready
from recovery.engine.steps import Ended, records_of_children
from recovery.records import Child, Decision, DecisionState, Outcome, Task
from recovery.records.ids import record_id
from recovery.store.lifecycle.graphs import Finished, GraphView, _projection

TASKS = 2000


class Counted(str):
    """A task's id that counts how often one is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


@pytest.fixture
def wide() -> Ended:
    """A decider of many children, all of which its value promises, and for which one other task waits."""
    Counted.compared = 0
    names = [f"c{number:05}" for number in range(TASKS)]
    task = Task(id="p/start", actor="order", args="[[],{}]", dependents={"join": "join"}, unlocks={"join": "join"})
    outcome = Outcome(pass_key="pass", value="[]", waits=tuple(map(Counted, names)))
    children = tuple(Child(id=Counted(name), actor="part", args="[[],{}]") for name in names)
    state = DecisionState.FINISHED
    return Ended(task, Decision(id=task.id, actor="order", state=state, outcome=outcome, children=children))


def test_records_of_children_that_are_promised(wide: Ended) -> None:
    tasks, decisions = records_of_children(wide.task, wide.decision)
    assert len(tasks) == len(decisions) == TASKS
    assert all(task.dependents == {"join": "join"} for task in tasks)
    assert Counted.compared <= 3 * TASKS


def test_actors_of_what_is_ready(wide: Ended) -> None:
    names = (*(child.id for child in wide.decision.children), "join")
    view = GraphView(epoch=0, registered=True, applied=True, ready=names, complete=False, finished=1, size=1)
    actors = _ready("p", [wide], view)
    assert list(actors) == [record_id("p", str(name)) for name in names]
    assert set(actors.values()) == {"part", "join"}
    assert Counted.compared <= 3 * TASKS


def test_the_graph_is_not_asked_path_by_path() -> None:
    asked = str(_projection([Finished("start", {}, ())], [f"c{number}" for number in range(TASKS)]))
    assert asked.count("$links") == 1
