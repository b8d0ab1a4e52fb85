"""Workflows started as processes, and watched until they end."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from recovery.demo.app import PROCESS
from recovery.demo.audit import Ran
from recovery.engine import Resources
from recovery.engine import start as start_process
from recovery.engine.actor import encode_call
from recovery.records import Process, ProcessState
from recovery.wfformat import Workflow

PAGE = 500
"""Processes that are asked for at once."""


@dataclass(slots=True)
class Run:
    """A process of a workflow, as far as it is known."""

    id: str
    workflow: Workflow
    state: ProcessState = ProcessState.RUNNING
    error: str | None = None
    results: list[Any] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return self.state is not ProcessState.RUNNING

    @property
    def ran(self) -> Ran:
        """What the audit is told of it."""
        return Ran(self.id, {task.id: task.parents for task in self.workflow.tasks}, tuple(self.results))


def start(resources: Resources, workflows: Sequence[Workflow], count: int, time_scale: float) -> Iterator[Run]:
    """Start `count` processes of these workflows, in turn."""
    arguments = [_arguments(workflow, time_scale) for workflow in workflows]
    for number in range(count):
        place = number % len(workflows)
        idle_timeout = resources.settings.idle_timeout
        process_id = start_process(resources, PROCESS, arguments[place], custom_id=None, idle_timeout=idle_timeout)
        yield Run(process_id, workflows[place])


def look(resources: Resources, runs: Iterable[Run]) -> None:
    """Read the state and result of these processes as they are stored now."""
    runs = list(runs)
    for first in range(0, len(runs), PAGE):
        page = runs[first : first + PAGE]
        found = resources.store.processes.get_many(run.id for run in page)
        for run in page:
            if process := found.get(run.id):
                _update(run, process)


def _update(run: Run, process: Process) -> None:
    run.state = process.state
    if process.state is ProcessState.FINISHED:
        run.results.append(json.loads(process.result or "null"))
    elif process.error is not None:
        run.error = f"{process.error.kind}: {process.error.message}"


def _arguments(workflow: Workflow, time_scale: float) -> str:
    rows = [[task.id, list(task.parents), task.runtime] for task in workflow.tasks]
    return encode_call(PROCESS, (rows, time_scale), {}).text
