"""`recovery show`: one process and its tasks."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.command_options import BAD, Commands, JsonOption, ProcessId
from recovery.cli.connection import connect
from recovery.cli.interrupts import process_goes_on
from recovery.cli.output import console, line, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, RenderableType

    from recovery.cli.process_tree import Shown
    from recovery.engine import Resources
    from recovery.records import Decision, Life, RepairNote
    from recovery.store.views.process_lookup import TaskLine

HELP = """Show a process: its state, and its tasks under those that scheduled them.

Each task has its state, what it waits for, what it was called with and what it gave, cut to the line; --json has all of
that. A value in <> is still to come, from the task of that id. Where there are over 200 tasks, those of one actor and
state are counted together. --watch shows it again every second until the process has ended, and then ends with 0, or 1
if it did not finish.

Example: [bold]recovery show 0198c1d2e3f47a5b8c9d0e1f2a3b4c5d --watch[/bold]
"""
LOOK_EVERY = 1.0

commands = Commands()


@commands.add(HELP)
def show(
    process_id: ProcessId,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again until it has ended.")] = False,
    history: Annotated[bool, typer.Option("--history", help="What it came to before it was restarted, too.")] = False,
    json: JsonOption = False,
) -> None:
    from recovery.cli.process_tree import look, print_history
    from recovery.engine.lookup import resolve

    resources = connect(needs_redis=False)
    process_id = resolve(resources, process_id)
    out = console()
    if watch:
        found = _watch(out, resources, process_id, live=out.is_terminal and not json)
    else:
        found = look(resources, process_id)
    if json:
        shown = as_dict(look(resources, process_id, whole=True))
        print_json("show", shown | {"last_repair": _last_repair(resources.store.graphs.last_repair(process_id))})
    else:
        for part in _parts(found, out.width):
            out.print(part)
        if history:
            print_history(out, found.process, resources.store.graphs.last_repair(process_id))
    if watch and found.process.state.value != "finished":
        raise typer.Exit(BAD)


def _watch(out: Console, resources: Resources, process_id: str, live: bool) -> Shown:
    """Look again until it has ended; `live`: and show it meanwhile. What is shown last is the caller's."""
    from rich.console import Group
    from rich.live import Live

    from recovery.cli.process_tree import look

    pause, found = threading.Event(), look(resources, process_id)
    try:
        with Live(console=out, auto_refresh=False, transient=True, vertical_overflow="ellipsis") as screen:
            while not found.is_over:
                if live:
                    screen.update(Group(*_parts(found, out.width)), refresh=True)
                pause.wait(LOOK_EVERY)
                found = look(resources, process_id)
    except KeyboardInterrupt:
        raise process_goes_on(process_id) from None
    return found


def _parts(found: Shown, width: int) -> Iterator[RenderableType]:
    from recovery.cli.process_tree import heading, tree

    yield from heading(found.process, found.characters, found.now)
    if found.damage is not None:
        advice = f"`recovery check {found.process.id}` shows what is done about it"
        yield line(f"damaged    {found.damage}; {advice}", style="yellow")
    yield tree(found, width)


def as_dict(found: Shown) -> dict[str, Any]:
    """Return all that is read of a process, as JSON has it."""
    from recovery.cli.task_texts import decoded
    from recovery.records.search_names import decode_labels

    process = found.process
    return {
        "process": process.id,
        "type": process.type,
        "custom_id": process.custom_id,
        "former_custom_id": process.former_custom_id,
        "replaced_by": process.replaced_by,
        "labels": decode_labels(process.labels),
        "application_version": process.version,
        "pinned": bool(process.pinned),
        "state": process.state,
        "started_at": process.started_at,
        "ended_at": process.ended_at,
        "result": decoded(process.result),
        "error": _error(process.error),
        "epoch": process.epoch,
        "damaged": None if found.damage is None else str(found.damage),
        "history": [_history_entry(life) for life in process.lives],
        "tasks": [_task(found, line) for line in found.lines],
    }


def _task(found: Shown, line: TaskLine) -> dict[str, Any]:
    from recovery.cli.process_tree import state_of
    from recovery.cli.task_texts import decoded, hint

    decision, texts = found.decisions.get(line.id), found.calls.get(line.id)
    outcome = decision.outcome if decision else None
    call = decoded(texts.args if texts else None)
    positional, named = call if isinstance(call, list) and len(call) == 2 else (None, None)
    return {
        "task": line.id,
        "actor": line.actor,
        "parent": line.parent,
        "state": state_of(decision),
        "arguments": positional,
        "named_arguments": named,
        "value": decoded(texts.value if texts else None),
        "error": _error(outcome.error if outcome else None),
        "attempts": decision.attempts if decision else 0,
        "timeouts": decision.timeouts if decision else 0,
        "retry": _retry(decision),
        "queued_at": decision.queued_at if decision else None,
        "claimed_at": decision.claimed_at if decision else None,
        "finished_at": outcome.finished_at if outcome else None,
        "worker": decision.worker if decision else None,
        "application_version": decision.version if decision else None,
        "pinned_to": decision.pinned_to if decision else None,
        "waits_for": list(found.links.get(line.id, ())),
        "hint": hint(decision, found.unserved, found.links, found.decisions, found.now, found.pinned),
    }


def _last_repair(repair: RepairNote | None) -> dict[str, Any] | None:
    if repair is None:
        return None
    return {"rule": repair.rule, "source": repair.source, "worker": repair.worker, "at": repair.at}


def _history_entry(life: Life) -> dict[str, Any]:
    """Return one epoch as JSON has it."""
    return {
        "epoch": life.epoch,
        "state": life.state,
        "error": f"{life.error.kind}: {life.error.message}" if life.error is not None else None,
        "restarted_at": life.ended_at,
        "restarted_from": list(life.tasks),
        "by": life.by,
        "reason": life.reason,
        "operation": life.operation,
    }


def _error(error: Any) -> dict[str, Any] | None:
    from recovery.retry.codes import class_of

    if error is None:
        return None
    return {
        "kind": error.kind,
        "message": error.message,
        "task": error.task,
        "code": error.code,
        "exhausted": error.exhausted,
        "class": None if error.code is None else class_of(error.code),
        "reason": error.reason,
        "no_retry": error.no_retry,
    }


def _retry(decision: Decision | None) -> dict[str, Any] | None:
    """Return how far the retries of a task have come, or None if it was never retried."""
    if decision is None or decision.retry is None:
        return None
    state = decision.retry
    return {
        "count": state.count,
        "cycle": state.cycle,
        "code": state.code,
        "reason": state.reason,
        "kind": state.kind,
        "message": state.message,
        "failed_at": state.failed_at,
        "since": state.since,
        "until": state.until,
        "next_at": decision.recovery_time if decision.state.value == "delayed" else None,
    }
