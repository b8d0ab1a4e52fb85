"""The fields of a WfFormat document: checks that they are present and of the right type.

Returns rows of plain values, and adds a line to `problems` for each missing or wrong field. An unreadable value is None
in its row. Later checks skip it, so that one mistake is reported once. What the values mean together is for `checks`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from reprlib import repr as short

# Both versions have the layout of 1.5, with a specification and an execution. Older versions keep everything in
# `workflow.tasks`, name tasks differently, and list edges from one end only.
VERSIONS = ("1.4", "1.5")

SPECIFICATION = "workflow.specification.tasks"
EXECUTION = "workflow.execution.tasks"


@dataclass(frozen=True, slots=True)
class Specified:
    """A task of the specification. An unreadable list is None."""

    id: str
    parents: tuple[str, ...] | None
    children: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Executed:
    """A task of the execution. An unreadable runtime is None."""

    id: str
    runtime: float | None


@dataclass(frozen=True, slots=True)
class Fields:
    """The document's fields. An unreadable list of tasks is None."""

    name: str
    tasks: tuple[Specified, ...] | None
    runs: tuple[Executed, ...] | None


def read_fields(document: object, problems: list[str]) -> Fields:
    """Read the document's fields, and add a line to `problems` for each unusable field."""
    unread = Fields("", None, None)
    if not isinstance(document, dict):
        problems.append(f"the top level must be a JSON object, not {short(document)}; is it a WfFormat file?")
        return unread
    version = document.get("schemaVersion")
    if version not in VERSIONS:
        problem = f"schemaVersion {short(version)} is not supported" if version else "schemaVersion is missing"
        problems.append(f"{problem}; convert the file to {VERSIONS[-1]!r} (supported are {', '.join(VERSIONS)})")
        return unread
    name = _text(document, "name", "", problems)
    workflow = _object(document, "workflow", "workflow", problems)
    if workflow is None:
        return unread
    if "tasks" in workflow and "specification" not in workflow:
        problems.append(
            "workflow.tasks is the layout from before WfFormat 1.5; "
            "convert the file to one with workflow.specification and workflow.execution"
        )
        return unread
    tasks = _rows(workflow, "specification", problems)
    runs = _rows(workflow, "execution", problems)
    return Fields(
        name or "",
        None if tasks is None else _specified(tasks, problems),
        None if runs is None else _executed(runs, problems),
    )


def _specified(rows: list[object], problems: list[str]) -> tuple[Specified, ...]:
    if not rows:
        problems.append(f"{SPECIFICATION} is empty; a workflow needs at least one task")
    tasks = []
    for row, id in _identified(rows, SPECIFICATION, problems):
        place = f"task {id!r}: "
        parents = _ids(row, "parents", place, problems)
        children = _ids(row, "children", place, problems)
        tasks.append(Specified(id, parents, children))
    return tuple(tasks)


def _executed(rows: list[object], problems: list[str]) -> tuple[Executed, ...]:
    return tuple(Executed(id, _runtime(row, id, problems)) for row, id in _identified(rows, EXECUTION, problems))


def _identified(rows: list[object], where: str, problems: list[str]) -> list[tuple[dict[str, object], str]]:
    identified = []
    for index, row in enumerate(rows):
        position = f"{where}[{index}]"
        if not isinstance(row, dict):
            problems.append(f"{position} must be an object, not {short(row)}")
        elif (id := _text(row, "id", f"{position}: ", problems)) is not None:
            identified.append((row, id))
    return identified


def _rows(workflow: dict[str, object], part: str, problems: list[str]) -> list[object] | None:
    where = f"workflow.{part}"
    holder = _object(workflow, part, where, problems)
    if holder is None:
        return None
    rows = holder.get("tasks")
    if isinstance(rows, list):
        return rows
    problems.append(_wrong(holder, "tasks", f"{where}.tasks", "an array of tasks"))
    return None


def _object(holder: dict[str, object], key: str, where: str, problems: list[str]) -> dict[str, object] | None:
    value = holder.get(key)
    if isinstance(value, dict):
        return value
    problems.append(_wrong(holder, key, where, "an object"))
    return None


def _text(holder: dict[str, object], key: str, where: str, problems: list[str]) -> str | None:
    value = holder.get(key)
    if isinstance(value, str) and value and _storable(value):
        return value
    problems.append(_wrong(holder, key, f"{where}{key}", "a string of at least one character"))
    return None


def _storable(text: str) -> bool:
    # JSON can contain half of a surrogate pair ("\ud800"), which no database accepts.
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _ids(holder: dict[str, object], key: str, where: str, problems: list[str]) -> tuple[str, ...] | None:
    value = holder.get(key)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    problems.append(_wrong(holder, key, f"{where}{key}", "an array of task ids, empty if there are none"))
    return None


def _runtime(holder: dict[str, object], id: str, problems: list[str]) -> float | None:
    value = holder.get("runtimeInSeconds")
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            seconds = float(value)
        except OverflowError:  # an integer of more than 308 digits
            seconds = math.inf
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    where = f"task {id!r}: {EXECUTION}: runtimeInSeconds"
    problems.append(_wrong(holder, "runtimeInSeconds", where, "a number of seconds, 0 or more"))
    return None


def _wrong(holder: dict[str, object], key: str, where: str, wanted: str) -> str:
    if key not in holder:
        return f"{where} is missing; add {wanted}"
    return f"{where} is {short(holder[key])}; it must be {wanted}"
