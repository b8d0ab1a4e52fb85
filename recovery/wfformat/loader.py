"""Loads a WfFormat file as a `Workflow` that is complete, has no cycles, and is in an order in which it can run.

Any problem of the file, from its path to its last runtime, is a `WorkflowError` that names the file and the task and
says what to do. The whole file is read into memory, so it must be a regular file of limited size: a pipe or a device
may never end, or may have no writer.
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

# Maximum size of a file. A task takes about 1.5 kB, so this is 40,000 tasks. In memory the file takes about six times
# its size.
MAX_BYTES = 64_000_000
# Maximum problems in an error. A file with a systematic mistake has it in every task, and ten show the pattern.
MAX_PROBLEMS = 10
# Maximum characters of a problem. An id may be as long as the file; a problem names at most four ids.
MAX_LENGTH = 500


@dataclass(frozen=True, slots=True)
class WorkflowTask:
    """A task, with the ids of the tasks that it waits for and of the tasks that wait for it, in the order of the
    file."""

    id: str
    parents: tuple[str, ...]
    children: tuple[str, ...]
    runtime: float
    """Seconds that the task took when the file was recorded."""


@dataclass(frozen=True, slots=True)
class Workflow:
    """A workflow. Its tasks are sorted parents first, otherwise as in the file."""

    name: str
    path: Path
    tasks: tuple[WorkflowTask, ...]

    @property
    def roots(self) -> tuple[str, ...]:
        """Ids of the tasks that have no parents."""
        return tuple(task.id for task in self.tasks if not task.parents)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Ids of the tasks that have no children."""
        return tuple(task.id for task in self.tasks if not task.children)

    @property
    def edges(self) -> tuple[tuple[str, str], ...]:
        """All pairs (parent, child)."""
        return tuple((task.id, child) for task in self.tasks for child in task.children)


def load(path: str | PathLike[str]) -> Workflow:
    """Read a WfFormat file. Raises one `WorkflowError` with all problems of the file."""
    path = Path(path)
    problems: list[str] = []
    fields = read_fields(_read_json(path), problems)
    check(fields, problems)
    if problems:
        raise WorkflowError(_message(path, problems))
    return _workflow(path, fields)


def example_path() -> Path:
    """Return the path of the small example workflow in this package: an order, from its receipt to its delivery."""
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
    except ValueError as error:  # a null character in the path, or an integer of thousands of digits
        raise WorkflowError(f"{path}: can't be read: {error}") from error
    return document


def _read(path: Path) -> bytes:
    # Non-blocking, because opening a pipe would wait for a writer.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # noqa: PTH123
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise WorkflowError(f"{path}: is not a regular file; save the workflow in one")
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise WorkflowError(f"{path}: is larger than {MAX_BYTES:,} bytes, some 40,000 tasks; is it a workflow?")
    return content


def _message(path: Path, problems: list[str]) -> str:
    problems = [problem if len(problem) <= MAX_LENGTH else f"{problem[:MAX_LENGTH]}…" for problem in problems]
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
