"""`recovery abort`: one process ended at once, after a look at it. Groups are aborted by `recovery broken abort`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli.command_options import Command, JsonOption, YesOption, paragraphs
from recovery.cli.shell_completion import complete_process

if TYPE_CHECKING:
    from recovery.engine import Resources
    from recovery.records import Process

HELP = """Abort a process, whether it runs or is broken: it ends at once and for good, without a result.

Attempts that run lose their claim. Without --yes the process is shown, and nothing is changed. Many are aborted by
[italic]recovery broken abort[/italic], if they are broken or wait for an actor that no worker serves, or by
[italic]recovery operation start abort[/italic].

Example: [bold]recovery abort order-4711 --reason "order withdrawn" --yes[/bold]
"""
DEFAULT_REASON = "aborted by an operator"

AbortReasonOption = Annotated[
    str, typer.Option("--reason", help="Why; shown with the process, and kept in the audit log.")
]


def abort(
    target: Annotated[
        str, typer.Argument(metavar="PROCESS_ID", help="Its id or custom id.", autocompletion=complete_process)
    ],
    reason: AbortReasonOption = DEFAULT_REASON,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json
    from recovery.engine.lookup import find_process
    from recovery.engine.operators.abort import abort_process

    resources = connect()
    process = find_process(resources, whole_process(resources, target))
    if yes:
        abort_process(resources, process.id, reason)
        text = f"process {process.id} is aborted"
    else:
        text = _preview(resources, process)
    if json:
        print_json("abort", {"process": process.id, "type": process.type, "state": process.state, "done": yes})
    else:
        console().print(text)


def whole_process(resources: Resources, target: str) -> str:
    """Return the id of the process that is named. Raises InputError for a task of a process."""
    from recovery.engine.lookup import resolve_task
    from recovery.errors import InputError

    process_id, task = resolve_task(resources, target)
    if task is not None:
        raise InputError(f"{target}: a process is aborted as a whole; give its id, {process_id}")
    return process_id


def _preview(resources: Resources, process: Process) -> str:
    """Return what an abort would do. Raises InputError for a process that can't be aborted."""
    from recovery.engine.operators.abort import already_finished
    from recovery.records import DecisionState, ProcessState
    from recovery.wording import count

    if process.state is ProcessState.ABORTED:
        return f"process {process.id} is aborted already; nothing was changed"
    if process.state is ProcessState.FINISHED:
        raise already_finished(process.id)
    states = [one.state for one in resources.store.process_details.decisions_of(process.id).values()]
    unfinished = sum(state is not DecisionState.FINISHED for state in states)
    working = states.count(DecisionState.WORKING)
    running = f", {working:,} of them running" if working else ""
    return (
        f"would abort process {process.id} ({process.type}), which is {process.state}, with "
        f"{count(unfinished, 'unfinished task')}{running}; add --yes to do it"
    )


def add_to(app: typer.Typer) -> None:
    """Register the command of this module."""
    app.command(cls=Command, help=paragraphs(HELP))(abort)
