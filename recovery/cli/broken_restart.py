"""`recovery broken restart`: interrupted tasks begun again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.broken_groups import (
    ActorOption,
    FingerprintOption,
    GivenTarget,
    KindOption,
    TypeOption,
    at_most,
    check_target,
    print_if_none,
    print_plan,
    selection_of,
)
from recovery.cli.command_options import JsonOption, ReasonOption, YesOption

if TYPE_CHECKING:
    from recovery.store import Selection

HELP = """Restart interrupted tasks: all of a process, one of them, or a group.

What was finished is not done again. A process runs again once none of its tasks is failed any more; so does one that
broke as a whole, at its process_timeout. For a group, says what it would do unless --yes is given.

Example: [bold]recovery broken restart --type order --kind TimeoutError --reason "the bank is back" --yes[/bold]
"""
TasksOption = Annotated[int | None, typer.Option("--limit", min=1, help="The most tasks to restart.")]


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
    selection = selection_of(process_type, actor, kind, fingerprint)
    check_target(target, selection, limit)
    if target is None and not yes:
        _would_restart(selection, limit, json=json)
    else:
        _restart(target, selection, reason, limit, json=json)


def _would_restart(selection: Selection, limit: int | None, *, json: bool) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json
    from recovery.wording import count

    resources = connect()
    tasks = at_most(limit, resources.store.interruptions.count(selection))
    if json:
        print_json("broken restart", {"done": False, "tasks": tasks, "processes": None})
    else:
        print_plan(console(), resources, selection, f"restart {count(tasks, 'interrupted task')}")


def _restart(target: str | None, selection: Selection, reason: str, limit: int | None, *, json: bool) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json
    from recovery.engine.lookup import resolve_task
    from recovery.engine.operators.restart import restart_process, restart_selected, told

    resources = connect()
    if target is not None:
        done = restart_process(resources, *resolve_task(resources, target), reason)
    else:
        done = restart_selected(resources, selection, limit, reason)
    if json:
        print_json("broken restart", {"done": True, "tasks": done.tasks, "processes": done.processes})
        return
    if target is None:
        print_if_none(console(), resources, selection, done.tasks)
    console().print(told(done))
