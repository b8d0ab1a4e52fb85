"""A WfFormat file as a `Workflow`: what `load` returns is complete, without cycles, in an order to run in.

Whatever is wrong with the file, from its path to its last runtime, is a `WorkflowError` that names the file
and the task and says what to do. The whole file is read into memory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from recovery.errors import WorkflowError
from recovery.wfformat.checks import agreed_edges, check, topological_order
from recovery.wfformat.fields import Fields, read_fields

# Enough to see a pattern; a file with one systematic mistake has it in every task.
MAX_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class WorkflowTask:
    """A task: the ids of those it waits for and of those that wait for it, in the order of the file."""

    id: str
    parents: tuple[str, ...]
    children: tuple[str, ...]
    runtime: float
    """Seconds that it took when the file was recorded."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow: its tasks, parents before children, otherwise in the order of the file."""

    name: str
    path: Path
    tasks: tuple[WorkflowTask, ...]

    @property
    def roots(self) -> tuple[str, ...]:
        """The tasks that wait for none."""
        return tuple(task.id for task in self.tasks if not task.parents)

    @property
    def leaves(self) -> tuple[str, ...]:
        """The tasks that none waits for."""
        return tuple(task.id for task in self.tasks if not task.children)

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """All (parent, child)."""
        return tuple((task.id, child) for task in self.tasks for child in task.children)


def load(path: str | PathLike[str]) -> Workflow:
    """Read a WfFormat file, or raise one `WorkflowError` with all that is wrong with it."""
    path = Path(path)
    problems: list[str] = []
    fields = read_fields(_read_json(path), problems)
    check(fields, problems)
    if problems:
        raise WorkflowError(_message(path, problems))
    return _workflow(path, fields)


def example_path() -> Path:
    """A small workflow that comes with the package: an order, from its receipt to its delivery."""
    return Path(__file__).with_name("example.json")


def _read_json(path: Path) -> object:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        document: object = json.loads(text)
    except OSError as error:
        raise WorkflowError(f"{path}: can't be read: {error.strerror or error}; check the path") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise WorkflowError(f"{path}: is not JSON: {error.msg} at {where}; correct it there") from error
    except UnicodeDecodeError as error:
        raise WorkflowError(f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except RecursionError as error:
        raise WorkflowError(f"{path}: is nested too deeply for a WfFormat file; check the path") from error
    except ValueError as error:  # a null in the path, or an integer of thousands of digits
        raise WorkflowError(f"{path}: can't be read: {error}") from error
    return document


def _message(path: Path, problems: list[str]) -> str:
    if len(problems) == 1:
        return f"{path}: {problems[0]}"
    lines = [f"{path}: {len(problems)} problems:", *problems[:MAX_PROBLEMS]]
    if len(problems) > MAX_PROBLEMS:
        lines.append(f"and {len(problems) - MAX_PROBLEMS} more")
    return "\n  ".join(lines)


def _workflow(path: Path, fields: Fields) -> Workflow:
    specified = fields.tasks or ()
    runtimes = {run.id: run.runtime or 0.0 for run in fields.runs or ()}
    tasks = {
        task.id: WorkflowTask(task.id, task.parents or (), task.children or (), runtimes[task.id]) for task in specified
    }
    return Workflow(fields.name, path, tuple(tasks[id] for id in topological_order(agreed_edges(specified))))
