"""`recovery drill`: a drill on the cluster as it is, or one after the other, and what each found as it is printed."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.command_options import (
    BAD,
    DURATION,
    Commands,
    JsonOption,
    ReasonOption,
    duration,
)
from recovery.cli.connection import connect
from recovery.cli.interrupts import Stopped, stop_in_order
from recovery.cli.output import Cell, console, line, messages, print_json, print_rows
from recovery.errors import InputError
from recovery.wording import count, show_duration

if TYPE_CHECKING:
    from recovery.drill.drill_report import DrillReport, Measured
    from recovery.drill.drilling import DrillPlan
    from recovery.engine import Resources

HELP = """Measure recovery on the cluster as it is, and hold it against what is promised.

Canaries, small processes of an actor that every worker serves, go through the workers: how soon does a process begin,
one step follow the other, a delay end; and how soon is a task queued again whose claim nobody renews? They are removed
at the end. docs/drill.md tells what each time is made of.

With --kill one of them kills its pool process and another one its worker, and it is measured how soon their tasks are
queued again. That asks first, and takes --yes where nobody can be asked; the workers must allow it
(RECOVERY_DRILL_KILL), and something should start them again: the drill does not.

--watch goes on, a drill every --every, and serves what it measures as metrics, if RECOVERY_METRICS_PORT is set.

Ends with 0 if every promise was kept, 1 if one was broken, 2 if there could be no drill.

Example: [bold]recovery drill[/bold]

Example: [bold]recovery drill --kill --reason "before the sale"[/bold]

Example: [bold]RECOVERY_METRICS_PORT=9110 recovery drill --watch --every 1m[/bold]
"""

EVERY = 60.0
"""Seconds."""

commands = Commands()


@commands.add(HELP)
def drill(
    processes: Annotated[int, typer.Option(help="Canaries to start.")] = 10,
    kill: Annotated[bool, typer.Option("--kill", help="Kill a pool process and a worker, too.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="With --kill: don't ask.")] = False,
    reason: ReasonOption = "",
    watch: Annotated[bool, typer.Option("--watch", help="One drill after the other, with metrics.")] = False,
    every: Annotated[
        float | None,
        typer.Option(
            parser=duration, metavar=DURATION, help="With --watch: how often; default: 1m.", show_default=False
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    from recovery.drill.drilling import DrillPlan

    plan = DrillPlan(processes, kill, reason)
    _check(watch=watch, every=every, kill=kill, yes=yes)
    resources = connect()
    if kill and not yes:
        _ask(resources, plan, EVERY if watch and every is None else every)
    try:
        with stop_in_order():
            if watch:
                _watch(resources, plan, every if every is not None else EVERY, json=json)
            good = _once(resources, plan, json=json)
    except Stopped as stopped:
        messages().print(f"stopped by {stopped}; its canaries are removed", style="yellow")
        raise typer.Exit(stopped.exit_code) from None
    raise typer.Exit(0 if good else BAD)


def _check(*, watch: bool, every: float | None, kill: bool, yes: bool) -> None:
    from recovery.drill.drilling import MAX_EVERY, MIN_EVERY

    if every is not None and not watch:
        raise InputError(f"--every {show_duration(every)}: goes with --watch")
    if every is not None and not MIN_EVERY <= every <= MAX_EVERY:
        raise InputError(
            f"--every {show_duration(every)}: must be {show_duration(MIN_EVERY)} to {show_duration(MAX_EVERY)}"
        )
    if yes and not kill:
        raise InputError("--yes: goes with --kill; nothing else is asked")
    if kill and not yes and not sys.stdin.isatty():
        raise InputError("--kill kills a pool process and a worker, and nobody can be asked here: add --yes")


def _ask(resources: Resources, plan: DrillPlan, every: float | None) -> None:
    """Have the user agree. Raises InputError if he does not, and, on record, where nothing may be killed."""
    from recovery.drill.readiness import muster
    from recovery.engine.operators.auditing import audited

    try:
        crew = muster(resources, kill=True)
    except InputError:
        with audited(resources, "drill", "kill", plan.why):
            raise
    names = ", ".join(one.name for one in crew.serving)
    again = f" every {show_duration(every)} until this is stopped" if every is not None else ""
    question = (
        f"A pool process and a worker, one of {count(len(crew.serving), 'worker')} ({names}), are killed{again} with "
        "all that they run. What they run is run again. Go on?"
    )
    if not typer.confirm(question, err=True):
        raise InputError("--kill: not agreed to; nothing was done")


def _once(resources: Resources, plan: DrillPlan, *, json: bool) -> bool:
    from recovery.drill.drilling import run

    report = run(resources, plan, lambda said: messages().print(said, style="dim"))
    show(report, json=json)
    return report.good


def _watch(resources: Resources, plan: DrillPlan, every: float, *, json: bool) -> None:
    """Run drills until a signal stops them. Raises Stopped."""
    from recovery.cli import connection
    from recovery.drill.drilling import watch

    settings, said = resources.settings, messages()
    connection.leave_nothing()  # a probe's metrics are its own, and end with it
    if not settings.metrics_port:
        said.print("no metrics are served: set RECOVERY_METRICS_PORT", style="yellow")
    else:
        from recovery.metrics.exporter import serve

        serve(settings, resources.store, resources.broker)
        said.print(f"metrics on http://{settings.metrics_host}:{settings.metrics_port}/metrics", style="dim")
    watch(
        resources,
        plan,
        every,
        lambda report: show(report, json=True) if json else show_line(report),
        lambda text: said.print(text, style="red"),
    )


STYLES = {"ok": "green", "late": "bold yellow", "failed": "bold red"}
RIGHT = ("probes", "median", "longest", "promised")
_HOW = {"late": "came late", "failed": "did not come"}


def show(report: DrillReport, *, json: bool) -> None:
    """Print the table of a drill, or its JSON."""
    if json:
        print_json("drill", report.as_dict())
        sys.stdout.flush()
        return
    out = console()
    print_rows(out, ["step", *RIGHT, "outcome", "made of"], map(_row, report.steps), RIGHT)
    out.print()
    for text, style in _remarks(report):
        out.print(text, style=style)


def _row(one: Measured) -> list[Cell]:
    found = one.as_dict()
    return [
        _words(one.step),
        f"{len(one.probes):,}",
        _seconds(found["median"]),
        _seconds(found["longest"]),
        _seconds(one.promise.seconds),
        line((found["outcome"], STYLES[found["outcome"]])),
        one.promise.why,
    ]


def _remarks(report: DrillReport) -> list[tuple[str, str]]:
    """Return the lines under the table, each with its style."""
    took = [one for one in report.workers if one.canaries]
    found = [(f"{len(took)} of {len(report.workers)} workers took part", "")]
    for worker in report.workers:
        if not worker.serves:
            found.append((f"{worker.name} does not serve recovery.canary (RECOVERY_CANARY is off)", "yellow"))
        elif not worker.canaries:
            found.append((f"{worker.name} took no canary: are its slots busy?", "yellow"))
        elif worker.killed:
            found.append((f"{worker.name} was killed; start it again, if nothing else does", "yellow"))
    found += [(note, "yellow") for note in report.notes]
    if report.left:
        were = "canary was not removed; a later drill removes it"
        if report.left > 1:
            were = "canaries were not removed; a later drill removes them"
        found.append((f"{report.left} {were}", "yellow"))
    for one in report.steps:
        if said := _broken(one.as_dict()):
            found.append((f"{_words(one.step)}: {said}", "bold red"))
    verdict = ("Every promise was kept.", "bold green") if report.good else ("A promise was broken.", "bold red")
    return [*found, verdict]


def _broken(step: dict[str, object]) -> str:
    """Return how a promise was broken, or an empty text if it was kept."""
    counts = [f"{step[what]} of {step['probes']} {said}" for what, said in _HOW.items() if step[what]]
    return ", ".join(counts)


def show_line(report: DrillReport) -> None:
    """Print one drill of many, in a line."""
    now = f"{datetime.now(UTC):%H:%M:%S}"
    told = [f"{_words(one.step)} {_seconds(one.as_dict()['longest'])}" for one in report.steps]
    broken = [f"{_words(one.step)}: {said}" for one in report.steps if (said := _broken(one.as_dict()))]
    style = STYLES["ok"] if report.good else STYLES["failed"]
    console().print(line(f"{now}  ", ("kept" if report.good else "broken", style), f"  {', '.join(told + broken)}"))


def _words(step: str) -> str:
    return step.replace("_", " ")


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{max(0.0, seconds) * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"
