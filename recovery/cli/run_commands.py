"""`recovery run`: workflows on servers and workers that run already."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.command_options import BAD, DURATION, Command, JsonOption, duration, paragraphs
from recovery.cli.interrupts import processes_go_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from recovery.engine import Resources
    from recovery.wfformat import workload

HELP = """Run workflows from WfFormat files on the servers and workers that run already, and wait for their ends.

The workers must serve the demo's application: recovery worker --app recovery.demo.app:app

Example: [bold]recovery run montage.json blast.json --processes 10 --time-scale 0.01[/bold]
"""

LOOK_EVERY = 0.1


def run(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Workflows in WfFormat, taken in turn.")],
    processes: Annotated[int, typer.Option(help="How many processes to start.")] = 1,
    time_scale: Annotated[float, typer.Option(help="Part of the files' runtimes that tasks sleep.")] = 1.0,
    timeout: Annotated[
        float, typer.Option(parser=duration, metavar=DURATION, help="How long to wait; the processes go on.")
    ] = "1h",  # type: ignore[assignment]
    json: JsonOption = False,
) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import console
    from recovery.wfformat import load, workload
    from recovery.wording import count

    workload.check_load(processes, time_scale, timeout)
    workflows = [load(path) for path in files]
    resources = connect()
    require_workers(resources)
    out, began = console(), time.monotonic()
    runs = []
    for started in workload.start(resources, workflows, processes, time_scale):
        runs.append(started)
        tasks = count(len(started.workflow.tasks), "task")
        if not json:
            out.print(f"{started.id}  {started.workflow.name}, {tasks}")
    try:
        good = _wait(resources, runs, began + timeout)
    except KeyboardInterrupt:
        raise processes_go_on(count(len(runs), "process")) from None
    _print(out, runs, good, time.monotonic() - began, json=json)
    raise typer.Exit(0 if good == len(runs) else BAD)


def _print(out: Console, runs: Sequence[workload.Run], good: int, seconds: float, *, json: bool) -> None:
    from recovery.cli.output import print_json
    from recovery.wording import show_age

    if json:
        found = [{"process": r.id, "workflow": r.workflow.name, "state": r.state, "error": r.error} for r in runs]
        print_json("run", {"processes": found, "finished": good, "seconds": round(seconds, 3)})
        return
    for one in runs:
        if one.error or not one.ended:
            out.print(
                f"{one.id}  {one.state}{f': {one.error}' if one.error else ''}",
                style="red",
            )
    out.print(f"{good} of {len(runs)} finished in {show_age(seconds)}")


def require_workers(resources: Resources) -> None:
    """Raise ServerUnavailable unless living workers serve all actors of the demo's application."""
    from recovery.demo.app import APP
    from recovery.demo.app import app as demo_app
    from recovery.errors import ServerUnavailable

    served = {queue for worker in resources.store.overview.workers_alive() for queue in worker.queues}
    if missing := sorted(set(demo_app.actors) - served):
        raise ServerUnavailable(
            f"no worker serves {', '.join(missing)} in database {resources.settings.database}: "
            f"start one with `recovery worker --app {APP}`, and `recovery beat --app {APP}`"
        )


def _wait(resources: Resources, runs: list[workload.Run], deadline: float) -> int:
    """Wait for the ends; how many finished."""
    from recovery.records import ProcessState
    from recovery.wfformat.workload import look

    pause = threading.Event()
    while (running := [one for one in runs if not one.ended]) and time.monotonic() < deadline:
        pause.wait(LOOK_EVERY)
        look(resources, running)
    return sum(one.state is ProcessState.FINISHED for one in runs)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command(cls=Command, help=paragraphs(HELP))(run)
