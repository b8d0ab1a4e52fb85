"""Each way in which a file can be wrong, and what the error says about it."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.errors import WorkflowError
from recovery.wfformat import load, loader

from .documents import Document, document, execution, specification, write


def refusal(path: Path) -> str:
    with pytest.raises(WorkflowError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def test_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.json") == "can't be read: No such file or directory; check the path"


def test_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path) == "can't be read: Is a directory; check the path"


def test_null_in_the_path() -> None:
    """Shown as what can be seen."""
    with pytest.raises(WorkflowError, match=r"^a\\x00b: can't be read: .*embedded null (byte|character in path)$"):
        load(Path("a\0b"))


def test_not_json(tmp_path: Path) -> None:
    path = write(tmp_path, '{\n  "name": "x"\n  "workflow": {}\n}')
    assert refusal(path) == "is not JSON: Expecting ',' delimiter at line 3, column 3; correct it there"


def test_empty_file(tmp_path: Path) -> None:
    assert "is not JSON: Expecting value at line 1, column 1" in refusal(write(tmp_path, ""))


def test_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "latin1.json"
    path.write_bytes('{"name": "Käse"}'.encode("latin-1"))
    assert refusal(path) == "is not UTF-8 at byte 11; save it as UTF-8"


def test_nested_too_deeply(tmp_path: Path) -> None:
    assert "is nested too deeply" in refusal(write(tmp_path, "[" * 200_000))


def test_number_too_long(tmp_path: Path) -> None:
    assert "can't be read: " in refusal(write(tmp_path, "1" * 5000))


@pytest.mark.parametrize("content", [[], "text", 1, None])
def test_not_an_object(tmp_path: Path, content: object) -> None:
    path = write(tmp_path, "null" if content is None else f"{content!r}".replace("'", '"'))
    assert refusal(path) == f"the top level must be a JSON object, not {content!r}; is it a WfFormat file?"


@pytest.mark.parametrize("version", ["1.3", "2.0", 1.5, ["1.5"]])
def test_unsupported_version(tmp_path: Path, version: object) -> None:
    message = refusal(write(tmp_path, document() | {"schemaVersion": version}))
    problem = f"schemaVersion {version!r} is not supported"
    assert message == f"{problem}; convert the file to '1.5' (supported are 1.4, 1.5)"


def test_no_version(tmp_path: Path) -> None:
    content = document()
    del content["schemaVersion"]
    assert refusal(write(tmp_path, content)).startswith("schemaVersion is missing; convert the file to '1.5'")


def test_layout_from_before_1_5(tmp_path: Path) -> None:
    content = document(version="1.4") | {"workflow": {"tasks": [{"name": "a", "parents": []}]}}
    assert refusal(write(tmp_path, content)).startswith("workflow.tasks is the layout from before WfFormat 1.5; ")


def case(
    name: str, spoil: Callable[[Document], object], *lines: str
) -> tuple[str, Callable[[Document], object], tuple[str, ...]]:
    return name, spoil, lines


def task(of: Document, id: str) -> Document:
    return next(task for task in specification(of) if task["id"] == id)


def edges_back(of: Document, *edges: tuple[str, str]) -> None:
    for parent, child in edges:
        task(of, parent)["children"].append(child)
        task(of, child)["parents"].append(parent)


SPEC = "workflow.specification.tasks"
EXEC = "workflow.execution.tasks"
LIST = "an array of task ids, empty if there are none"
SECONDS = "a number of seconds, 0 or more"
TEXT = "a string of at least one character"

FIELDS = [
    case("no name", lambda d: d.pop("name"), f"name is missing; add {TEXT}"),
    case("name not text", lambda d: d.update(name=3), f"name is 3; it must be {TEXT}"),
    case("no workflow", lambda d: d.pop("workflow"), "workflow is missing; add an object"),
    case("workflow not object", lambda d: d.update(workflow=[]), "workflow is []; it must be an object"),
    case(
        "no specification",
        lambda d: d["workflow"].pop("specification"),
        "workflow.specification is missing; add an object",
    ),
    case(
        "no execution",
        lambda d: d["workflow"].pop("execution"),
        "workflow.execution is missing; add an object",
    ),
    case(
        "no tasks",
        lambda d: d["workflow"]["specification"].pop("tasks"),
        f"{SPEC} is missing; add an array of tasks",
    ),
    case(
        "tasks not array",
        lambda d: d["workflow"]["execution"].update(tasks={}),
        f"{EXEC} is {{}}; it must be an array of tasks",
    ),
    case(
        "empty",
        lambda d: (specification(d).clear(), execution(d).clear()),
        f"{SPEC} is empty; a workflow needs at least one task",
    ),
    case("task not object", lambda d: specification(d).append("e"), f"{SPEC}[4] must be an object, not 'e'"),  # type: ignore[arg-type]
    case("run not object", lambda d: execution(d).append(None), f"{EXEC}[4] must be an object, not None"),  # type: ignore[arg-type]
    case("no id", lambda d: specification(d).append({}), f"{SPEC}[4]: id is missing; add {TEXT}"),
    case("no id of a run", lambda d: execution(d).append({}), f"{EXEC}[4]: id is missing; add {TEXT}"),
    case("empty id", lambda d: specification(d).append({"id": ""}), f"{SPEC}[4]: id is ''; it must be {TEXT}"),
    case(
        "half a character",
        lambda d: specification(d).append({"id": "\ud800"}),
        f"{SPEC}[4]: id is '\\ud800'; it must be {TEXT}",
    ),
    case("no parents", lambda d: task(d, "b").pop("parents"), f"task 'b': parents is missing; add {LIST}"),
    case("no children", lambda d: task(d, "b").pop("children"), f"task 'b': children is missing; add {LIST}"),
    case(
        "parents null",
        lambda d: task(d, "b").update(parents=None),
        f"task 'b': parents is None; it must be {LIST}",
    ),
    case(
        "child not text",
        lambda d: task(d, "b").update(children=[4]),
        f"task 'b': children is [4]; it must be {LIST}",
    ),
    case(
        "children only",
        lambda d: [task.pop("parents") for task in specification(d)],
        *(f"task '{id}': parents is missing; add {LIST}" for id in "abcd"),
    ),
    case(
        "parents only",
        lambda d: [task.pop("children") for task in specification(d)],
        *(f"task '{id}': children is missing; add {LIST}" for id in "abcd"),
    ),
    case(
        "no runtime",
        lambda d: execution(d)[1].pop("runtimeInSeconds"),
        f"task 'b': {EXEC}: runtimeInSeconds is missing; add {SECONDS}",
    ),
]

RUNTIMES = [
    case(
        f"runtime {value!r:.20}",
        lambda d, value=value: execution(d)[1].update(runtimeInSeconds=value),  # type: ignore[misc]
        f"task 'b': {EXEC}: runtimeInSeconds is {shown}; it must be {SECONDS}",
    )
    for value, shown in [
        (-1, "-1"),
        (-0.5, "-0.5"),
        (math.nan, "nan"),
        (math.inf, "inf"),
        ("2", "'2'"),
        (None, "None"),
        (True, "True"),
        (10**400, f"1{'0' * 17}...{'0' * 19}"),
    ]
]

GRAPHS = [
    case(
        "duplicate id",
        lambda d: specification(d).append(dict(specification(d)[1])),
        f"task 'b': {SPEC} has this id 2 times; ids must be unique",
    ),
    case(
        "unknown parent",
        lambda d: task(d, "a")["parents"].append("x"),
        f"task 'a': parent 'x' is not in {SPEC}; add it or correct the id",
    ),
    case(
        "unknown child",
        lambda d: task(d, "d")["children"].append("x"),
        f"task 'd': child 'x' is not in {SPEC}; add it or correct the id",
    ),
    case(
        "child that does not know its parent",
        lambda d: task(d, "b")["parents"].clear(),
        "task 'a': has child 'b', but 'b' has no parent 'a'; add it there or remove it here",
    ),
    case(
        "parent that does not know its child",
        lambda d: task(d, "a")["children"].remove("b"),
        "task 'b': has parent 'a', but 'a' has no child 'b'; add it there or remove it here",
    ),
    case(
        "parent listed twice",
        lambda d: task(d, "b")["parents"].append("a"),
        "task 'b': parent 'a' is listed more than once; list it once",
    ),
    case(
        "own parent and child",
        lambda d: edges_back(d, ("b", "b")),
        "task 'b': is its own parent; remove it from that list",
        "task 'b': is its own child; remove it from that list",
    ),
    case(
        "cycle of two",
        lambda d: edges_back(d, ("b", "a")),
        "cycle: 'a' → 'b' → 'a': each waits for the one before; remove one of these dependencies",
    ),
    case(
        "cycle of three, from parent to child",
        lambda d: edges_back(d, ("d", "a")),
        "cycle: 'a' → 'b' → 'd' → 'a': each waits for the one before; remove one of these dependencies",
    ),
    case(
        "cycle after and before others",
        lambda d: edges_back(d, ("c", "b"), ("b", "c")),
        "cycle: 'b' → 'c' → 'b': each waits for the one before; remove one of these dependencies",
    ),
    case(
        "task without execution",
        lambda d: execution(d).pop(),
        f"task 'd': is not in {EXEC}; add it with its runtimeInSeconds",
    ),
    case(
        "execution without task",
        lambda d: execution(d).append({"id": "x", "runtimeInSeconds": 1}),
        f"task 'x': is in {EXEC}, not in {SPEC}; remove it or correct the id",
    ),
    case(
        "duplicate execution",
        lambda d: execution(d).append({"id": "a", "runtimeInSeconds": 1}),
        f"task 'a': {EXEC} has it 2 times; keep one",
    ),
]


@pytest.mark.parametrize(
    ("spoil", "lines"),
    [pytest.param(spoil, lines, id=name) for name, spoil, lines in FIELDS + RUNTIMES + GRAPHS],
)
def test_refused_for_just_this(tmp_path: Path, spoil: Callable[[Document], object], lines: tuple[str, ...]) -> None:
    content = document()
    spoil(content)
    expected = lines[0] if len(lines) == 1 else "\n  ".join([f"{len(lines)} problems:", *lines])
    assert refusal(write(tmp_path, content)) == expected


def test_two_cycles_are_both_told(tmp_path: Path) -> None:
    content = document("abcd", [("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")])
    first, second = refusal(write(tmp_path, content)).splitlines()[1:]
    assert "'a' → 'b' → 'a'" in first
    assert "'c' → 'd' → 'c'" in second


def test_problems_of_all_kinds_are_told_together(tmp_path: Path) -> None:
    content = document()
    del content["name"]
    edges_back(content, ("d", "a"))
    execution(content)[0]["runtimeInSeconds"] = -1
    execution(content).pop()
    lines = refusal(write(tmp_path, content)).splitlines()
    assert lines[0] == "4 problems:"
    assert [line.split()[0] for line in lines[1:]] == ["name", "task", "cycle:", "task"]


@pytest.mark.parametrize(("tasks", "last"), [(10, None), (11, "and 1 more"), (25, "and 15 more")])
def test_ten_problems_are_told_and_the_rest_counted(tmp_path: Path, tasks: int, last: str | None) -> None:
    content = document([str(number) for number in range(tasks)], [])
    for run in execution(content):
        run["runtimeInSeconds"] = None
    lines = refusal(write(tmp_path, content)).splitlines()
    assert lines[0] == f"{tasks} problems:"
    assert len([line for line in lines if "runtimeInSeconds is None" in line]) == 10
    assert (lines[-1].strip() == last) if last else (len(lines) == 11)


def test_a_file_without_an_end_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), Path("/dev/null"), tmp_path / "pipe"):
        with pytest.raises(WorkflowError, match="is not a regular file"):
            load(path)
    monkeypatch.setattr(loader, "MAX_BYTES", 1000)
    with pytest.raises(WorkflowError, match="larger than 1,000 bytes"):
        load(write(tmp_path, document([str(number) for number in range(20)], [])))
