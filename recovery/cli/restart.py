"""`recovery restart`: a process done again, from the beginning or from any of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.completion import complete_process
from recovery.cli.options import Command
from recovery.cli.output import JsonOption, paragraphs

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.engine.operations.redo import Preview

HELP = """Have a process done again from the beginning, or from any of its tasks, finished ones too.

With a task all that depends on its result is done again; the rest is kept. First a preview is shown; nothing is changed
without --apply. What failed alone is restarted by [italic]recovery broken restart[/italic], and many processes at once
by [italic]recovery operation start restart_from[/italic].

Example: [bold]recovery restart order-4711 --from 2d6kojyo --reason "wrong prices" --apply[/bold]
"""
SHOWN = 20


def restart(
    process_id: Annotated[
        str, typer.Argument(metavar="PROCESS_ID", help="Its id or custom id.", autocompletion=complete_process)
    ],
    from_: Annotated[
        list[str] | None,
        typer.Option("--from", metavar="TASK", help="From this task, or the start of its id; may be repeated."),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the process.", show_default=False)] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Do it.")] = False,
    json: JsonOption = False,
) -> None:
    from recovery.cli.envelope import print_json
    from recovery.cli.output import connect, console
    from recovery.engine.lookup import resolve
    from recovery.engine.operations.redo import preview_redo, redo_process

    resources, tasks = connect(), from_ or []
    process_id = resolve(resources, process_id)
    seen = redo_process(resources, process_id, reason, tasks) if apply else preview_redo(resources, process_id, tasks)
    if json:
        print_json("restart", _as_dict(seen, apply))
    else:
        _print(console(), seen, apply)


def _as_dict(seen: Preview, applied: bool) -> dict[str, Any]:
    return {
        "process": seen.process.id,
        "from": list(seen.tasks),
        "again": list(seen.again),
        "dropped": list(seen.dropped),
        "kept": seen.kept,
        "results_thrown_away": seen.thrown_away,
        "seconds_thrown_away": round(seen.seconds, 3),
        "stays_failed": list(seen.failed),
        "applied": applied,
    }


def _print(out: Console, seen: Preview, applied: bool) -> None:
    from recovery.durations import show_age
    from recovery.plurals import count

    again, dropped = count(len(seen.again), "task"), count(len(seen.dropped), "task")
    if applied:
        out.print(f"process {seen.process.id} runs again: {again} done again, {dropped} dropped, {seen.kept} kept")
        return
    out.print(f"process {seen.process.id} is {seen.process.state}; from {', '.join(seen.tasks)}")
    anew = f", and {dropped} dropped that these schedule anew" if seen.dropped else ""
    out.print(f"{again} would be done again{anew}; {seen.kept} kept")
    for task, decision in list(seen.again.items())[:SHOWN]:
        out.print(f"  {task}  {decision.actor}  {decision.state}")
    if len(seen.again) > SHOWN:
        out.print(f"  and {len(seen.again) - SHOWN:,} more")
    thrown = count(seen.thrown_away, "result")
    out.print(f"{thrown} would be thrown away, which took {show_age(seen.seconds)}")
    if seen.failed:
        out.print(f"kept, and failed: {', '.join(seen.failed[:5])}: the process breaks for it once more")
    out.print("nothing was changed: --apply does it")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=Command, help=paragraphs(HELP))(restart)
