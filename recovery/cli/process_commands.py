"""`recovery import`, `recovery restart` and `recovery abort`: what an operator does to processes that are named.

An import reads collected processes back from their export. A restart does a process again, from the beginning or from
any of its tasks; an abort ends it for good. Both show first what they would do. Groups of broken processes are
restarted and aborted by `recovery broken`, and all others by operations.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.command_options import Commands, JsonOption, ProcessId, YesOption
from recovery.cli.connection import connect
from recovery.cli.output import console, print_answer, print_json
from recovery.cli.shell_completion import complete_actor
from recovery.errors import InputError
from recovery.wording import count, show_age

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from recovery.engine import Resources
    from recovery.engine.operators.redo import Preview
    from recovery.records import Process

IMPORT_HELP = """Read processes back that `recovery operation start collect --export` has written to files.

A process that is there as it was exported is left as it is, so it may be run again; one that is there of an earlier
epoch, and at rest, is replaced. One whose custom id another process has by now comes back without it. All files are
checked first: if anything in them is no process that has ended, or is there of a later epoch, nothing is saved.

Example: [bold]recovery import /mnt/exports/operation-12-*.jsonl --reason "the auditors ask"[/bold]
"""

commands = Commands()


@commands.add(IMPORT_HELP, "import")
def import_(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", show_default=False, help="Files of an export.")],
    reason: Annotated[
        str, typer.Option("--reason", help="Why; needed, and kept in the audit log.", show_default=False)
    ] = "",
    json: JsonOption = False,
) -> None:
    from recovery.engine.operators.auditing import audited, reason_of
    from recovery.operations.importing import read_back

    why, resources = reason_of(reason, "kept in the audit log"), connect()
    with audited(resources, "import", " ".join(map(str, files)), why) as outcome:
        brought, there, replaced = read_back(resources, files)
        told = f", {replaced} of them in place of what they had come to before" if replaced else ""
        outcome.text = f"{count(brought, 'process')} brought back{told}, {there} were there"
    found = {"imported": brought, "there": there, "replaced": replaced}
    print_answer("import", found, f"{outcome.text} already", json=json)


RESTART_HELP = """Have a process done again from the beginning, or from any of its tasks, finished ones too.

With a task all that depends on its result is done again; the rest is kept. The name of an actor stands for all of its
tasks in the process. Without --yes a preview is shown, and nothing is changed. What failed alone is restarted by
[italic]recovery broken restart[/italic], and many processes at once by
[italic]recovery operation start restart_from[/italic].

Example: [bold]recovery restart order-4711 --from look_up --reason "wrong prices" --yes[/bold]
"""
TASKS_SHOWN = 20
"""Tasks that are done again, of which the preview shows the first ones."""
TASKS_NAMED = 5
"""Tasks that a line names."""


@commands.add(RESTART_HELP)
def restart(
    process_id: ProcessId,
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
    from recovery.engine.lookup import resolve
    from recovery.engine.operators.redo import preview_redo, redo_process

    resources, tasks = connect(), from_ or []
    process_id = resolve(resources, process_id)
    seen = redo_process(resources, process_id, reason, tasks) if yes else preview_redo(resources, process_id, tasks)
    if json:
        print_json("restart", _restart_as_dict(seen, yes))
    else:
        _print_restart(console(), seen, yes)


def _restart_as_dict(seen: Preview, applied: bool) -> dict[str, Any]:
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


def _print_restart(out: Console, seen: Preview, applied: bool) -> None:
    again, dropped = count(len(seen.again), "task"), count(len(seen.dropped), "task")
    if applied:
        out.print(f"process {seen.process.id} runs again: {again} done again, {dropped} dropped, {seen.kept} kept")
        return
    out.print(f"process {seen.process.id} is {seen.process.state}; from {_first_tasks(seen.tasks)}")
    anew = f", and {dropped} dropped that these schedule anew" if seen.dropped else ""
    out.print(f"{again} would be done again{anew}; {seen.kept} kept")
    for task, decision in list(seen.again.items())[:TASKS_SHOWN]:
        out.print(f"  {task}  {decision.actor}  {decision.state}")
    if len(seen.again) > TASKS_SHOWN:
        out.print(f"  and {len(seen.again) - TASKS_SHOWN:,} more")
    thrown = count(seen.thrown_away, "result")
    out.print(f"{thrown} would be thrown away, which took {show_age(seen.seconds)}")
    if seen.failed:
        out.print(f"kept, and failed: {_first_tasks(seen.failed)}: the process breaks for it once more")
    out.print("nothing was changed; add --yes to do it")


def _first_tasks(tasks: Sequence[str]) -> str:
    """Return the first task ids, and how many more there are."""
    more = f" and {len(tasks) - TASKS_NAMED:,} more" if len(tasks) > TASKS_NAMED else ""
    return f"{', '.join(tasks[:TASKS_NAMED])}{more}"


ABORT_HELP = """Abort a process, whether it runs or is broken: it ends at once and for good, without a result.

Attempts that run lose their claim. Without --yes the process is shown, and nothing is changed. Many are aborted by
[italic]recovery broken abort[/italic], if they are broken or wait for an actor that no worker serves, or by
[italic]recovery operation start abort[/italic].

Example: [bold]recovery abort order-4711 --reason "order withdrawn" --yes[/bold]
"""
DEFAULT_REASON = "aborted by an operator"

AbortReasonOption = Annotated[
    str, typer.Option("--reason", help="Why; shown with the process, and kept in the audit log.")
]


@commands.add(ABORT_HELP)
def abort(
    target: ProcessId,
    reason: AbortReasonOption = DEFAULT_REASON,
    yes: YesOption = False,
    json: JsonOption = False,
) -> None:
    from recovery.engine.lookup import find_process
    from recovery.engine.operators.abort import abort_process

    resources = connect()
    process = find_process(resources, whole_process(resources, target))
    if yes:
        abort_process(resources, process.id, reason)
        text = f"process {process.id} is aborted"
    else:
        text = _abort_preview(resources, process)
    print_answer(
        "abort", {"process": process.id, "type": process.type, "state": process.state, "done": yes}, text, json=json
    )


def whole_process(resources: Resources, target: str) -> str:
    """Return the id of the process that is named. Raises InputError for a task of a process."""
    from recovery.engine.lookup import resolve_task

    process_id, task = resolve_task(resources, target)
    if task is not None:
        raise InputError(f"{target}: a process is aborted as a whole; give its id, {process_id}")
    return process_id


def _abort_preview(resources: Resources, process: Process) -> str:
    """Return what an abort would do. Raises InputError for a process that can't be aborted."""
    from recovery.engine.operators.abort import already_finished
    from recovery.records import DecisionState, ProcessState

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
