"""`recovery restart`: a process done again, from the beginning or from any of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.command_options import Command, JsonOption, YesOption, paragraphs
from recovery.cli.shell_completion import complete_actor, complete_process

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from recovery.engine.operators.redo import Preview

HELP = """Have a process done again from the beginning, or from any of its tasks, finished ones too.

With a task all that depends on its result is done again; the rest is kept. The name of an actor stands for all of its
tasks in the process. Without --yes a preview is shown, and nothing is changed. What failed alone is restarted by
[italic]recovery broken restart[/italic], and many processes at once by
[italic]recovery operation start restart_from[/italic].

Example: [bold]recovery restart order-4711 --from look_up --reason "wrong prices" --yes[/bold]
"""
SHOWN = 20
"""Tasks that are done again, of which the preview shows the first ones."""
NAMED = 5
"""Tasks that a line names."""


def restart(
    process_id: Annotated[
        str, typer.Argument(metavar="PROCESS_ID", help="Its id or custom id.", autocompletion=complete_process)
    ],
    from_: Annotated[
        list[str] | None,
        typer.Option(
            "--from",
            metavar="TASK",
            autocompletion=complete_actor,
            help="From this task: its id, the start of it, or an actor's name for all of its tasks. May be repeated.",
        ),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the process.", show_default=False)] = "",
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json
    from recovery.engine.lookup import resolve
    from recovery.engine.operators.redo import preview_redo, redo_process

    resources, tasks = connect(), from_ or []
    process_id = resolve(resources, process_id)
    seen = redo_process(resources, process_id, reason, tasks) if yes else preview_redo(resources, process_id, tasks)
    if json:
        print_json("restart", _as_dict(seen, yes))
    else:
        _print(console(), seen, yes)


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
    from recovery.wording import count, show_age

    again, dropped = count(len(seen.again), "task"), count(len(seen.dropped), "task")
    if applied:
        out.print(f"process {seen.process.id} runs again: {again} done again, {dropped} dropped, {seen.kept} kept")
        return
    out.print(f"process {seen.process.id} is {seen.process.state}; from {_first(seen.tasks)}")
    anew = f", and {dropped} dropped that these schedule anew" if seen.dropped else ""
    out.print(f"{again} would be done again{anew}; {seen.kept} kept")
    for task, decision in list(seen.again.items())[:SHOWN]:
        out.print(f"  {task}  {decision.actor}  {decision.state}")
    if len(seen.again) > SHOWN:
        out.print(f"  and {len(seen.again) - SHOWN:,} more")
    thrown = count(seen.thrown_away, "result")
    out.print(f"{thrown} would be thrown away, which took {show_age(seen.seconds)}")
    if seen.failed:
        out.print(f"kept, and failed: {_first(seen.failed)}: the process breaks for it once more")
    out.print("nothing was changed; add --yes to do it")


def _first(tasks: Sequence[str]) -> str:
    """The first task ids, and how many more there are."""
    more = f" and {len(tasks) - NAMED:,} more" if len(tasks) > NAMED else ""
    return f"{', '.join(tasks[:NAMED])}{more}"


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(cls=Command, help=paragraphs(HELP))(restart)
