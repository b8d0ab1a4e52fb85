"""A WfFormat file as a `Workflow`: what `load` returns is complete, without cycles, in an order to run in.

Whatever is wrong with the file, from its path to its last runtime, is a `WorkflowError` that names the file
and the task and says what to do. The whole file is read into memory, so it must be a regular one of limited size: a
pipe or a device may have no end, or nobody at the other.
"""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from recovery.errors import WorkflowError
from recovery.wfformat.checks import agreed_edges, check, topological_order
from recovery.wfformat.document import Fields, read_fields

# A task takes some 1.5 kB of a file, so these are 40,000 tasks; the file takes some six times its size in memory.
MAX_BYTES = 64_000_000
# Enough to see a pattern; a file with one systematic mistake has it in every task.
MAX_PROBLEMS = 10
# An id may be as long as the file; four of a usual length are in a problem at most.
MAX_LENGTH = 500


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
        document: object = json.loads(_read(path).decode("utf-8-sig"))
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


def _read(path: Path) -> bytes:
    # Not blocking: to open a pipe waits for somebody who writes to it.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise WorkflowError(f"{path}: is not a regular file; save the workflow in one")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise WorkflowError(f"{path}: is larger than {MAX_BYTES:,} bytes, some 40,000 tasks; is it a workflow?")
    return content


def _message(path: Path, problems: list[str]) -> str:
    problems = [one if len(one) <= MAX_LENGTH else f"{one[:MAX_LENGTH]}…" for one in problems]
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
