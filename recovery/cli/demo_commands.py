"""`recovery demo` and `recovery run`: workflows from files, on a cluster of their own or on workers that run."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.command_options import BAD, DURATION, Commands, JsonOption, duration
from recovery.cli.connection import connect
from recovery.cli.interrupts import Stopped, processes_go_on, stop_in_order
from recovery.cli.output import console, messages, print_json
from recovery.errors import ServerUnavailable
from recovery.wording import count, show_age

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from recovery.engine import Resources
    from recovery.wfformat import workload

DEMO = """Run workflows on a cluster whose workers are killed while you watch, and count what was lost.

Starts MongoDB, Valkey and workers on this machine in a folder that is removed at the end (or uses the servers that
RECOVERY_MONGO_URI and RECOVERY_BROKER_URL name). Workflows are JSON files in WfFormat; without a file, a small
example is run. Ends with 0 only if every process finished, no accepted result was lost, none was accepted twice, no
live record was without a deadline and no repair tells of lost records.

With --disaster all of Redis, the whole graph collection, or a random tenth of the records of every kind is destroyed
under live processes, and one operation has them brought to their ends. Processes that lost what nobody can bring back
are listed.

With --chaos workers and their processes, beats, MongoDB's primary (one of three) and Valkey are killed, frozen or
stepped down, and messages dropped, one after the other, for as long as --for says (else half of --timeout). --fail lets
a part of all attempts fail for what passes by itself, as a host that is away.

With --drill [italic]recovery drill --kill[/italic] is run at the end on the same workers, and what it measured by the
records is held against what its canaries wrote into the ledger.

Example: [bold]recovery demo[/bold]

Example: [bold]recovery demo montage.json --processes 30 --kill-every 1s --time-scale 0.01 --json[/bold]

Example: [bold]recovery demo --chaos --fail 0.3 --for 10m --seed 7[/bold]
"""

commands = Commands()


@commands.add(DEMO)
def demo(  # noqa: PLR0913
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Workflows in WfFormat, taken in turn.", show_default=False),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(help="How many to start; default: 20, with --disaster 2,000.", show_default=False)
    ] = None,
    workers: Annotated[int, typer.Option(help="Workers, of two processes each.")] = 2,
    kill_every: Annotated[
        float,
        typer.Option(
            parser=duration,
            metavar=DURATION,
            help="Time between kills of a worker, 0: none; with --chaos: between faults.",
        ),
    ] = "2s",  # type: ignore[assignment]
    chaos: Annotated[bool, typer.Option("--chaos", help="Break not only workers.")] = False,
    faults: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="KIND", help="With --chaos: only faults of this kind.", show_default=False),
    ] = None,
    fail: Annotated[
        float, typer.Option(help="Part of attempts that fail for what passes, and are tried again; up to 0.9.")
    ] = 0.0,
    go_on: Annotated[
        float,
        typer.Option(
            "--for",
            parser=duration,
            metavar=DURATION,
            help="How long to break things, and to start another process for each that ends.",
        ),
    ] = "0s",  # type: ignore[assignment]
    disaster: Annotated[
        str | None,
        typer.Option(
            metavar="redis|graph|mixed", help="Destroy that, and repair all by one operation.", show_default=False
        ),
    ] = None,
    kill_half_way: Annotated[
        bool, typer.Option("--kill-half-way", help="With --disaster: kill all workers during the repair.")
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="With --disaster: repair in Spark; its driver is killed half way, too.")
    ] = False,
    time_scale: Annotated[
        float | None,
        typer.Option(
            help="Part of the files' runtimes that tasks sleep; default: 0.1, with --disaster 0.", show_default=False
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(parser=duration, metavar=DURATION, help="How long to wait after the last start.")
    ] = "5m",  # type: ignore[assignment]
    drill: Annotated[
        bool, typer.Option("--drill", help="Run a drill at the end, and hold its figures against the ledger's.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Of the choice of faults and victims; default: a new one.")] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep logs, which name each repair, after a good end too.")
    ] = False,
    json: JsonOption = False,
) -> None:
    from recovery.demo.options import Options, disaster_named
    from recovery.demo.run import run
    from recovery.demo.screen import Screen, summary

    options = Options(
        files=files or (),
        processes=processes if processes is not None else 2000 if disaster else 20,
        workers=workers,
        kill_every=kill_every,
        chaos=chaos,
        faults=faults or (),
        fail=fail,
        go_on=go_on,
        disaster=disaster_named(disaster),
        kill_half_way=kill_half_way,
        spark=spark,
        time_scale=time_scale if time_scale is not None else 0.0 if disaster else 0.1,
        timeout=timeout,
        drill=drill,
        seed=seed,
        keep=keep,
    )
    try:
        with stop_in_order(), Screen(messages() if json else console(), "recovery demo") as progress:
            report = run(options, progress)
    except Stopped as stopped:
        messages().print(f"stopped by {stopped}", style="yellow")
        raise typer.Exit(stopped.exit_code) from None
    if json:
        print_json("demo", report.as_dict())
    else:
        console().print(summary(report))
    raise typer.Exit(0 if report.good else BAD)


RUN = """Run workflows from WfFormat files on the servers and workers that run already, and wait for their ends.

The workers must serve the demo's application: recovery worker --app recovery.demo.app:app

Example: [bold]recovery run montage.json blast.json --processes 10 --time-scale 0.01[/bold]
"""

LOOK_EVERY = 0.1


@commands.add(RUN)
def run(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Workflows in WfFormat, taken in turn.")],
    processes: Annotated[int, typer.Option(help="How many processes to start.")] = 1,
    time_scale: Annotated[float, typer.Option(help="Part of the files' runtimes that tasks sleep.")] = 1.0,
    timeout: Annotated[
        float, typer.Option(parser=duration, metavar=DURATION, help="How long to wait; the processes go on.")
    ] = "1h",  # type: ignore[assignment]
    json: JsonOption = False,
) -> None:
    from recovery.wfformat import load, workload

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
