"""`recovery broken abort`: processes ended at once, one or a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.abort import DEFAULT_REASON, AbortReasonOption, whole_process
from recovery.cli.abort_waiting import abort_waiting_for
from recovery.cli.broken_groups import (
    ActorOption,
    FingerprintOption,
    KindOption,
    TypeOption,
    at_most,
    check_target,
    print_if_none,
    print_plan,
    selection_of,
)
from recovery.cli.command_options import JsonOption, YesOption
from recovery.cli.shell_completion import complete_actor, complete_process

if TYPE_CHECKING:
    from recovery.store import Selection

HELP = """Abort a process, or all processes of a group: they end at once, without a result.

Attempts that run lose their claim. A process may be aborted while it runs. For a group, says what it would do unless
--yes is given. --waiting-for takes the processes with tasks for an actor that no worker serves.

Example: [bold]recovery broken abort 0198c1d2e3f47a5b8c9d0e1f2a3b4c5d --reason "order withdrawn"[/bold]

Example: [bold]recovery broken abort --waiting-for charge_card_v1 --yes[/bold]
"""
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
    from recovery.errors import InputError

    selection = selection_of(process_type, actor, kind, fingerprint)
    if waiting_for is not None:
        if target is not None or selection.filter():
            raise InputError("--waiting-for goes with --limit, --reason and --yes alone")
        abort_waiting_for(waiting_for, reason, limit, yes=yes, json=json)
        return
    check_target(target, selection, limit)
    if target is None and not yes:
        _would_abort(selection, limit, json=json)
    else:
        _abort(target, selection, reason, limit, json=json)


def _would_abort(selection: Selection, limit: int | None, *, json: bool) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json
    from recovery.wording import count

    resources = connect()
    processes = at_most(limit, resources.store.interruptions.count_processes(selection))
    if json:
        print_json("broken abort", {"done": False, "processes": processes})
    else:
        print_plan(console(), resources, selection, f"abort {count(processes, 'process')}")


def _abort(target: str | None, selection: Selection, reason: str, limit: int | None, *, json: bool) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json
    from recovery.engine.operators.abort import abort_process, abort_selected
    from recovery.wording import count

    resources = connect()
    if target is not None:
        abort_process(resources, whole_process(resources, target), reason)
        done = 1
    else:
        done = abort_selected(resources, selection, reason, limit)
    if json:
        print_json("broken abort", {"done": True, "processes": done})
        return
    if target is None:
        print_if_none(console(), resources, selection, done)
    console().print(f"{count(done, 'process')} aborted")
