from __future__ import annotations

import codecs
import json
from dataclasses import FrozenInstanceError
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.errors import WorkflowError
from recovery.wfformat import Workflow, WorkflowTask, example_path, load

from .documents import document, execution, specification, write


def published_files() -> list[Path]:
    for folder in Path(__file__).resolve().parents:
        if found := sorted((folder / "shared" / "data" / "wfinstances").glob("*.json")):
            return found
    return []


def assert_topological(workflow: Workflow) -> None:
    place = {task.id: index for index, task in enumerate(workflow.tasks)}
    assert len(place) == len(workflow.tasks)
    for parent, child in workflow.edges:
        assert place[parent] < place[child]
    assert set(workflow.edges) == {(parent, task.id) for task in workflow.tasks for parent in task.parents}


@pytest.mark.parametrize("version", ["1.4", "1.5"])
def test_a_workflow_is_loaded(tmp_path: Path, version: str) -> None:
    path = write(tmp_path, document(version=version))
    workflow = load(path)
    assert (workflow.name, workflow.path) == ("a workflow", path)
    assert workflow.tasks == (
        WorkflowTask("a", (), ("b", "c"), 0.5),
        WorkflowTask("b", ("a",), ("d",), 0.5),
        WorkflowTask("c", ("a",), ("d",), 0.5),
        WorkflowTask("d", ("b", "c"), (), 0.5),
    )
    assert workflow.roots == ("a",)
    assert workflow.leaves == ("d",)
    assert workflow.edges == (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"))
    assert load(str(path)) == workflow


def test_a_workflow_is_frozen(tmp_path: Path) -> None:
    workflow = load(write(tmp_path, document()))
    with pytest.raises(FrozenInstanceError):
        workflow.name = "another"  # type: ignore[misc]
    assert isinstance(hash(workflow), int)


def test_children_that_stand_before_their_parents_are_put_behind_them(tmp_path: Path) -> None:
    workflow = load(write(tmp_path, document(ids="dxcba")))
    assert [task.id for task in workflow.tasks] == ["x", "a", "c", "b", "d"]


def test_whole_seconds_become_floats(tmp_path: Path) -> None:
    spoilt = document()
    execution(spoilt)[0]["runtimeInSeconds"] = 3
    runtime = load(write(tmp_path, spoilt)).tasks[0].runtime
    assert runtime == 3.0
    assert isinstance(runtime, float)


def test_a_byte_order_mark_does_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    path.write_bytes(codecs.BOM_UTF8 + json.dumps(document()).encode())
    assert load(path).roots == ("a",)


def test_a_long_chain_is_loaded(tmp_path: Path) -> None:
    ids = [str(number) for number in range(5000)]
    content = document(ids=reversed(ids), edges=())
    for task in specification(content):
        number = int(task["id"])
        task["parents"] = [str(number - 1)] if number else []
        task["children"] = [str(number + 1)] if number < 4999 else []
    assert [task.id for task in load(write(tmp_path, content)).tasks] == ids


def test_the_example_is_small_and_fans_out_twice() -> None:
    workflow = load(example_path())
    assert workflow.name == "order-fulfilment"
    assert len(workflow.tasks) == 12
    assert workflow.roots == ("receive_order",)
    assert workflow.leaves == ("close_order",)
    assert sum(len(task.children) > 1 for task in workflow.tasks) >= 2
    assert sum(len(task.parents) > 1 for task in workflow.tasks) >= 2
    assert all(0 < task.runtime <= 3 for task in workflow.tasks)
    assert_topological(workflow)


@pytest.mark.skipif(not published_files(), reason="no folder shared/data/wfinstances beside the project")
@pytest.mark.parametrize("path", published_files(), ids=lambda path: path.stem)
def test_a_published_file_is_loaded(path: Path) -> None:
    content = json.loads(path.read_text())
    workflow = load(path)
    assert workflow.name == content["name"]
    assert {task.id: task.runtime for task in workflow.tasks} == {
        task["id"]: task["runtimeInSeconds"] for task in execution(content)
    }
    assert set(workflow.edges) == {(task["id"], child) for task in specification(content) for child in task["children"]}
    assert_topological(workflow)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[str], list[tuple[str, str]]]:
    """Ids in an order to run in, and edges between them that go forward."""
    text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
    ids = draw(st.lists(text, min_size=1, max_size=12, unique=True))
    pairs = [(parent, child) for index, parent in enumerate(ids) for child in ids[index + 1 :]]
    edges = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    return ids, edges


@given(graph=graphs(), data=st.data())
def test_any_graph_is_loaded_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory,
    graph: tuple[list[str], list[tuple[str, str]]],
    data: st.DataObject,
) -> None:
    ids, edges = graph
    folder = tmp_path_factory.getbasetemp()
    workflow = load(write(folder, document(data.draw(st.permutations(ids)), edges)))
    assert {task.id for task in workflow.tasks} == set(ids)
    assert sorted(workflow.edges) == sorted(edges)
    assert_topological(workflow)
    # What is in order already stays as it is.
    assert [task.id for task in load(write(folder, document(ids, edges))).tasks] == ids


@given(graph=graphs(), data=st.data())
def test_an_edge_back_closes_a_cycle_of_edges_that_exist(
    tmp_path_factory: pytest.TempPathFactory,
    graph: tuple[list[str], list[tuple[str, str]]],
    data: st.DataObject,
) -> None:
    ids, edges = graph
    if not edges:
        return
    parent, child = data.draw(st.sampled_from(edges))
    edges = [*edges, (child, parent)]
    names = {id: f"t{index}" for index, id in enumerate(ids)}
    renamed = [(names[one], names[other]) for one, other in edges]
    path = write(tmp_path_factory.getbasetemp(), document(names.values(), renamed))
    with pytest.raises(WorkflowError, match="cycle") as caught:
        load(path)
    cycle = str(caught.value).partition("cycle: ")[2].partition(": each")[0].split(" → ")
    assert cycle[0] == cycle[-1]
    assert {(one.strip("'"), other.strip("'")) for one, other in pairwise(cycle)} <= set(renamed)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "a", "b", "z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["id", "tasks"]), inner),
    max_leaves=5,
)


@given(data=st.data())
def test_whatever_stands_anywhere_in_a_file_the_answer_is_a_workflow_or_a_workflow_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    holder: list[object] = [document()]
    for _ in range(data.draw(st.integers(1, 3))):
        at: object = holder
        key: object = 0
        for _ in range(data.draw(st.integers(0, 7))):
            inner = at[key]  # type: ignore[index]
            if not isinstance(inner, dict | list) or not inner:
                break
            at, key = (
                inner,
                data.draw(st.sampled_from(list(inner) if isinstance(inner, dict) else range(len(inner)))),
            )
        at[key] = data.draw(JSON)  # type: ignore[index]
    path = write(tmp_path_factory.getbasetemp(), json.dumps(holder[0]))
    try:
        assert_topological(load(path))
    except WorkflowError as error:
        assert str(error).startswith(f"{path}: ")
