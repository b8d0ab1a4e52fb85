"""`recovery broken`: what failed for good, and what an operator can do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.broken_abort import HELP as ABORT
from recovery.cli.broken_abort import abort
from recovery.cli.broken_groups import ActorOption, FingerprintOption, KindOption, Target, TypeOption, selection_of
from recovery.cli.broken_restart import HELP as RESTART
from recovery.cli.broken_restart import restart
from recovery.cli.command_options import Command, CommandGroup, JsonOption, paragraphs

if TYPE_CHECKING:
    from recovery.engine import Resources
    from recovery.records import Interruption

HELP = """List, show, restart and abort what failed for good.

A process is broken once one of its tasks has ended with an error; the task is interrupted. Tasks that do not wait for
it go on.

Example: [bold]recovery broken list[/bold]

Example: [bold]recovery broken restart --fingerprint 5f0c83a1b2d4 --yes[/bold]
"""
LIST_HELP = """List interrupted tasks, alike ones together, the most frequent first.

Alike are those of one process type, actor, kind of error and fingerprint, which tells where in the code it was raised.
With --ids each task is listed, and its process's custom id. Costs what is broken, not what exists.

Example: [bold]recovery broken list --type order --json[/bold]
"""
SHOW_HELP = """Show the interrupted tasks of a process, or one of them, with their stacks.

Example: [bold]recovery broken show 0198c1d2e3f47a5b8c9d0e1f2a3b4c5d[/bold]
"""

app = typer.Typer(name="broken", cls=CommandGroup, help=paragraphs(HELP), no_args_is_help=True, rich_markup_mode="rich")


@app.command("list", cls=Command, help=paragraphs(LIST_HELP))
def list_(
    process_type: TypeOption = None,
    actor: ActorOption = None,
    kind: KindOption = None,
    fingerprint: FingerprintOption = None,
    ids: Annotated[
        bool, typer.Option("--ids", help="List each task, with its process's custom id, not groups alone.")
    ] = False,
    json: JsonOption = False,
) -> None:
    import dataclasses

    from recovery.cli.connection import connect
    from recovery.cli.interrupted import print_groups, print_none, print_tasks, tasks_of
    from recovery.cli.output import console, messages, print_json
    from recovery.health.stored_records import count_unlisted
    from recovery.wording import count

    resources, selection = connect(needs_redis=False), selection_of(process_type, actor, kind, fingerprint)
    interruptions = resources.store.interruptions
    groups = interruptions.groups(selection)
    if json:
        listed = {"tasks": list(tasks_of(resources, selection))} if ids else {}
        print_json("broken list", {"groups": [dataclasses.asdict(group) for group in groups], **listed})
    elif groups and ids:
        print_tasks(console(), tasks_of(resources, selection))
    elif groups:
        print_groups(console(), groups)
    else:
        print_none(console(), interruptions, selection)
    if unlisted := count_unlisted(resources):
        left_out = f"{count(unlisted, 'broken process')} left out, since records of what was interrupted were lost"
        messages().print(f"{left_out}. `recovery sweep --repair` lists them again", style="yellow")


@app.command(cls=Command, help=paragraphs(SHOW_HELP))
def show(target: Target, json: JsonOption = False) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.interrupted import as_dict, lines
    from recovery.cli.output import console, print_json

    resources = connect(needs_redis=False)
    found = _of_target(resources, target)
    decision = resources.store.decisions.get_committed  # one at a time: each may have a stack of 20 kB
    if json:
        print_json("broken show", {"tasks": [as_dict(one, decision(one.id)) for one in found]})
        return
    out = console()
    for one in found:
        for line in lines(one, decision(one.id)):
            out.print(line)


def _of_target(resources: Resources, target: str) -> list[Interruption]:
    from recovery.engine.lookup import find_process, resolve_task
    from recovery.errors import InputError
    from recovery.records import ProcessState
    from recovery.records.ids import record_id

    process_id, task = resolve_task(resources, target)
    process = find_process(resources, process_id)
    wanted = None if task is None else record_id(process_id, task)
    found = [one for one in resources.store.interruptions.of_process(process_id) if wanted in (None, one.id)]
    if not found:
        message = f"{target}: no task of it is interrupted; the process is {process.state}"
        if process.state is ProcessState.BROKEN and not task:
            message += f". If the list was lost, `recovery check {process_id} --repair` makes it again"
        raise InputError(message)
    return found


def add_to(commands: typer.Typer) -> None:
    """Register the commands of this module, and those that change something."""
    app.command(cls=Command, help=paragraphs(RESTART))(restart)
    app.command(cls=Command, help=paragraphs(ABORT))(abort)
    commands.add_typer(app)
