"""`recovery broken`: what failed for good, and what an operator can do about it.

`interrupted` shows the tasks that these commands are about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.command_options import (
    Commands,
    JsonOption,
    ReasonOption,
    YesOption,
)
from recovery.cli.connection import connect
from recovery.cli.interrupted import (
    as_dict,
    lines,
    print_groups,
    print_if_none,
    print_none,
    print_plan,
    print_tasks,
    tasks_of,
)
from recovery.cli.output import console, messages, print_answer, print_json
from recovery.cli.process_commands import DEFAULT_REASON, AbortReasonOption, whole_process
from recovery.cli.shell_completion import complete_actor, complete_process, complete_type
from recovery.errors import InputError
from recovery.wording import count

if TYPE_CHECKING:
    from recovery.engine import Resources
    from recovery.records import Interruption
    from recovery.store import Selection

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
RESTART_HELP = """Restart interrupted tasks: all of a process, one of them, or a group.

What was finished is not done again. A process runs again once none of its tasks is failed any more; so does one that
broke as a whole, at its process_timeout. For a group, says what it would do unless --yes is given.

Example: [bold]recovery broken restart --type order --kind TimeoutError --reason "the bank is back" --yes[/bold]
"""
ABORT_HELP = """Abort a process, or all processes of a group: they end at once, without a result.

Attempts that run lose their claim. A process may be aborted while it runs. For a group, says what it would do unless
--yes is given. --waiting-for takes the processes with tasks for an actor that no worker serves.

Example: [bold]recovery broken abort 0198c1d2e3f47a5b8c9d0e1f2a3b4c5d --reason "order withdrawn"[/bold]

Example: [bold]recovery broken abort --waiting-for charge_card_v1 --yes[/bold]
"""

commands = Commands("broken", HELP)

_TARGET = typer.Argument(
    metavar="PROCESS_ID[/TASK]",
    help="A process's id or custom id, or that and a task's id.",
    show_default=False,
    autocompletion=complete_process,
)
Target = Annotated[str, _TARGET]
GivenTarget = Annotated[str | None, _TARGET]
TypeOption = Annotated[
    str | None, typer.Option("--type", help="Only of processes of this type.", autocompletion=complete_type)
]
ActorOption = Annotated[
    str | None, typer.Option("--actor", help="Only tasks of this actor.", autocompletion=complete_actor)
]
KindOption = Annotated[str | None, typer.Option("--kind", help="Only with this kind of error.")]
FingerprintOption = Annotated[str | None, typer.Option("--fingerprint", help="Only with this fingerprint.")]
TasksOption = Annotated[int | None, typer.Option("--limit", min=1, help="The most tasks to restart.")]
ProcessesOption = Annotated[int | None, typer.Option("--limit", min=1, help="The most processes to abort.")]
WaitingForOption = Annotated[
    str | None,
    typer.Option(
        "--waiting-for",
        metavar="ACTOR",
        help="Processes with tasks for an actor that no worker serves.",
        autocompletion=complete_actor,
    ),
]


@commands.add(LIST_HELP, "list")
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

    from recovery.health.stored_records import count_unlisted

    resources, selection = connect(needs_redis=False), _selection_of(process_type, actor, kind, fingerprint)
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


@commands.add(SHOW_HELP)
def show(target: Target, json: JsonOption = False) -> None:
    resources = connect(needs_redis=False)
    found = _interruptions_of(resources, target)
    decision = resources.store.decisions.get_committed  # one at a time: each may have a stack of 20 kB
    if json:
        print_json("broken show", {"tasks": [as_dict(one, decision(one.id)) for one in found]})
        return
    out = console()
    for one in found:
        for line in lines(one, decision(one.id)):
            out.print(line)


@commands.add(RESTART_HELP)
def restart(  # noqa: PLR0913
    target: GivenTarget = None,
    process_type: TypeOption = None,
    actor: ActorOption = None,
    kind: KindOption = None,
    fingerprint: FingerprintOption = None,
    limit: TasksOption = None,
    reason: ReasonOption = "",
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    from recovery.engine.lookup import resolve_task
    from recovery.engine.operators.restart import restart_process, restart_selected, told

    selection = _selection_of(process_type, actor, kind, fingerprint)
    _check_target(target, selection, limit)
    resources = connect()
    if target is None and not yes:
        tasks = resources.store.interruptions.count(selection)
        tasks = min(tasks, limit or tasks)
        if json:
            print_json("broken restart", {"done": False, "tasks": tasks, "processes": None})
        else:
            print_plan(
                console(), resources.store.interruptions, selection, f"restart {count(tasks, 'interrupted task')}"
            )
        return
    if target is not None:
        done = restart_process(resources, *resolve_task(resources, target), reason)
    else:
        done = restart_selected(resources, selection, limit, reason)
    if json:
        print_json("broken restart", {"done": True, "tasks": done.tasks, "processes": done.processes})
        return
    if target is None and not done.tasks:
        print_if_none(console(), resources.store.interruptions, selection)
    console().print(told(done))


@commands.add(ABORT_HELP)
def abort(  # noqa: PLR0913
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="PROCESS_ID", help="Its id or custom id.", show_default=False, autocompletion=complete_process
        ),
    ] = None,
    process_type: TypeOption = None,
    actor: ActorOption = None,
    kind: KindOption = None,
    fingerprint: FingerprintOption = None,
    waiting_for: WaitingForOption = None,
    limit: ProcessesOption = None,
    reason: AbortReasonOption = DEFAULT_REASON,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    from recovery.engine.operators.abort import abort_process, abort_selected

    selection = _selection_of(process_type, actor, kind, fingerprint)
    if waiting_for is not None:
        if target is not None or selection.filter():
            raise InputError("--waiting-for goes with --limit, --reason and --yes alone")
        _abort_waiting_for(waiting_for, reason, limit, yes=yes, json=json)
        return
    _check_target(target, selection, limit)
    resources = connect()
    if target is None and not yes:
        processes = resources.store.interruptions.count_processes(selection)
        processes = min(processes, limit or processes)
        if json:
            print_json("broken abort", {"done": False, "processes": processes})
        else:
            print_plan(console(), resources.store.interruptions, selection, f"abort {count(processes, 'process')}")
        return
    if target is not None:
        abort_process(resources, whole_process(resources, target), reason)
        done = 1
    else:
        done = abort_selected(resources, selection, reason, limit)
    if json:
        print_json("broken abort", {"done": True, "processes": done})
        return
    if target is None and not done:
        print_if_none(console(), resources.store.interruptions, selection)
    console().print(f"{count(done, 'process')} aborted")


def _abort_waiting_for(actor: str, reason: str, limit: int | None, *, yes: bool, json: bool) -> None:
    """Abort the processes with tasks for an actor that no worker serves, or, without `yes`, say how many they are."""
    from recovery.engine.operators.abort import abort_waiting, waiting_for

    if yes:
        processes = abort_waiting(connect(), actor, reason, limit)
        said = f"{count(processes, 'process')} aborted"
    else:
        waiting = len(waiting_for(connect(), actor))
        processes = min(waiting, limit or waiting)
        said = f"would abort {count(processes, 'process')} with tasks for {actor}; add --yes to do it"
    print_answer("broken abort", {"done": yes, "processes": processes}, said, json=json)


def _interruptions_of(resources: Resources, target: str) -> list[Interruption]:
    from recovery.engine.lookup import find_process, resolve_task
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


def _selection_of(process_type: str | None, actor: str | None, kind: str | None, fingerprint: str | None) -> Selection:
    """Return the group that options name: all interrupted tasks, if none does. Raises InputError."""
    from recovery.records import given
    from recovery.store import Selection

    names = {"type": process_type, "actor": actor, "kind": kind, "fingerprint": fingerprint}
    return Selection(**{key: given.text(name, f"--{key}") for key, name in names.items() if name is not None})


def _check_target(target: str | None, selection: Selection, limit: int | None) -> None:
    """Raise InputError unless either one process or task is named, or a group."""
    options = "--type, --actor, --kind or --fingerprint"
    if target is None and not selection.filter():
        raise InputError(f"nothing is named: give a process id, or a group by {options} (`recovery broken list`)")
    if target is not None and (selection.filter() or limit is not None):
        raise InputError(f"{target} and a group are named: give either a process id, or {options} with --limit")
