"""`recovery demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recovery.cli.command_options import BAD, DURATION, Command, JsonOption, duration, paragraphs

HELP = """Run workflows on a cluster whose workers are killed while you watch, and count what was lost.

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
    from recovery.cli.interrupts import Stopped, stop_in_order
    from recovery.cli.output import console, messages, print_json
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


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command(cls=Command, help=paragraphs(HELP))(demo)
