"""Starts workflows as processes, and reads their state and results.

They run on workers whose application has the process type `PROCESS`, for example `recovery.demo.app`.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.engine import Resources, Starts
from recovery.engine.actors.actor import encode_call
from recovery.errors import InputError
from recovery.records import Process, ProcessState, ProcessTypePreferences
from recovery.wfformat import Workflow

PROCESS = "workflow"
"""The process type of a workflow."""
MAX_PROCESSES = 1_000_000
"""Maximum processes of a run; one machine can hold that many."""
PAGE = 500
"""Processes whose state is read at once."""
VALUES_PAGE = 100
"""Processes whose tasks' values are read at once."""


@dataclass(slots=True)
class Run:
    """A process of a workflow, as it was last read."""

    id: str
    workflow: Workflow
    state: ProcessState = ProcessState.RUNNING
    error: str | None = None
    results: list[Any] = field(default_factory=list)
    stored: dict[str, Any] | None = None
    """{task id: accepted value} as last read. None before the first read."""
    accepted: dict[str, list[Any]] = field(default_factory=dict)
    """{task id: all different accepted values that were ever read}. More than one value for a task is an error."""
    standing: str | None = None
    """For a process that has not ended in time: whether it makes progress, and why it has not ended."""

    @property
    def ended(self) -> bool:
        return self.state is not ProcessState.RUNNING


class WorkflowStarts:
    """Starts processes of some workflows in turn."""

    def __init__(self, resources: Resources, workflows: Sequence[Workflow], time_scale: float) -> None:
        self._resources, self._workflows, self._time_scale = resources, workflows, time_scale
        self._started, self._name = 0, uuid.uuid4().hex

    def next(self) -> Run:
        """Start the next process. If this raises ServerUnavailable, call it again: it then starts the same process, and
        at most once."""
        index = self._started % len(self._workflows)
        preferences = ProcessTypePreferences(id=PROCESS, idle_timeout=self._resources.settings.idle_timeout)
        starts, custom_id = Starts(self._resources, preferences), f"{self._name}-{self._started}"
        arguments = _arguments(self._workflows[index], self._time_scale, self._started)
        started = starts.start(starts.process(arguments, custom_id=custom_id))
        self._started += 1
        return Run(started.id, self._workflows[index])


def check_load(processes: int, time_scale: float, timeout: float) -> None:
    """Raise InputError, which names the option, for an invalid value.

    Args:
        processes: Number of processes to start.
        time_scale: Factor by which the files' runtimes are multiplied.
        timeout: Seconds to wait until the processes end.
    """
    if processes < 1:
        raise InputError(f"--processes {processes}: must be at least 1")
    if processes > MAX_PROCESSES:
        raise InputError(f"--processes {processes}: must be at most {MAX_PROCESSES:,}, the most for one machine")
    if not (math.isfinite(time_scale) and time_scale >= 0):
        raise InputError(f"--time-scale {time_scale}: must be 0 or more")
    if not timeout > 0:
        raise InputError(f"--timeout {timeout}: must be over 0 seconds")


def start(resources: Resources, workflows: Sequence[Workflow], count: int, time_scale: float) -> Iterator[Run]:
    """Start `count` processes of these workflows in turn."""
    starts = WorkflowStarts(resources, workflows, time_scale)
    for _ in range(count):
        yield starts.next()


def look(resources: Resources, runs: Iterable[Run]) -> None:
    """Read the state and result of these processes as they are stored now."""
    runs = list(runs)
    for first in range(0, len(runs), PAGE):
        page = runs[first : first + PAGE]
        processes = resources.store.processes.ended([run.id for run in page])
        for run in page:
            if process := processes.get(run.id):
                _update(run, process)


def look_at_values(resources: Resources, runs: Iterable[Run]) -> None:
    """Read the accepted values of these processes' tasks, with majority read concern."""
    details, runs = resources.store.process_details, list(runs)
    for first in range(0, len(runs), VALUES_PAGE):
        page = runs[first : first + VALUES_PAGE]
        values = details.values_of([run.id for run in page])
        for run in page:
            run.stored = {task: _decoded(text) for task, text in values[run.id].items()}
            for task, value in run.stored.items():
                if value not in (accepted := run.accepted.setdefault(task, [])):
                    accepted.append(value)


def _update(run: Run, process: Process) -> None:
    run.state = process.state
    if process.state is ProcessState.FINISHED:
        run.results.append(json.loads(process.result or "null"))
    elif process.error is not None:
        run.error = f"{process.error.kind}: {process.error.message}"


def _decoded(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return text  # not a value of ours; the audit reports it


def _arguments(workflow: Workflow, time_scale: float, number: int) -> str:
    rows = [[task.id, list(task.parents), task.runtime] for task in workflow.tasks]
    return encode_call(PROCESS, (rows, time_scale, number), {}).text
