"""`recovery status`: how much is where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from recovery.cli.output import JsonOption, paragraphs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from recovery.engine import Resources
    from recovery.records import Worker
    from recovery.store import ActorQueue

HELP = """Show how much is where: processes and tasks by state, queues, workers, slots that hang, and what
is overdue.

Decisions (one per task) are counted while something is to happen to them; [italic]applying[/italic] are finished
ones whose effects are on the way, [italic]at rest[/italic] are those that wait for others or are done.

Costs what is live, not what exists, so it may be asked of a cluster that is busy. Overdue by more than a few
seconds means that nobody scans: is a beat running, and a worker?

Example: [bold]recovery status --json[/bold]
"""
TO_COME = {"delayed": "delayed", "after_others": "after other tasks"}
"""What is told of the tasks that are not queued yet: counted of actors that nobody serves."""


def status(json: JsonOption = False) -> None:
    import json as json_module

    from recovery.cli.output import connect, console

    found = look(connect())
    if json:
        print(json_module.dumps(found))
    else:
        console().print(_table(found), crop=False)


def look(resources: Resources) -> dict[str, Any]:
    """The status, as JSON has it. Ages are in seconds."""
    from recovery.cli.output import seconds_between
    from recovery.store.views.overview import DEADLINES

    overview, store = resources.store.overview, resources.store
    now, polled, actors = store.now(), store.queues.all(), store.waiting.by_actor()
    names = sorted({*actors, *polled})
    depths = resources.broker.depths(names) if names else {}
    queues = {}
    for name in names:
        last = polled[name].polled_at if name in polled else None
        queues[name] = {
            "depth": depths[name],
            "polled_seconds_ago": seconds_between(last, now),
            **_waiting(actors.get(name)),
        }
    overdue, alive = overview.overdue(), overview.workers_alive()
    return {
        "database": resources.settings.database,
        "processes": overview.processes(),
        "decisions": overview.decisions(),
        "queues": queues,
        "workers": [{"name": w.name, "queues": list(w.queues)} for w in alive],
        "hung": _hung(alive, now),
        "freed": {
            one.id: {"slots": one.slots, "seconds_ago": seconds_between(one.at, now)} for one in store.hung.freed()
        },
        "overdue": {
            name: {"count": overdue[name], "oldest_seconds": overview.oldest_overdue(name)} for name in DEADLINES
        },
    }


def _waiting(queue: ActorQueue | None) -> dict[str, Any]:
    """What waits by the records, and for whom: whatever became of its messages."""
    from recovery.health import waiting

    return {
        "tasks": queue.tasks if queue else 0,
        "oldest_seconds": queue.waiting_seconds if queue else None,
        # Of those that nobody serves.
        "delayed": queue.to_come.delayed if queue else 0,
        "after_others": queue.to_come.after_others if queue else 0,
        "workers": list(queue.workers) if queue else [],
        "blocked_seconds": queue.blocked_seconds if queue else None,
        "problem": waiting.trouble(queue),
    }


def _hung(workers: Sequence[Worker], now: datetime) -> list[dict[str, Any]]:
    """The slots that hang, by what their workers told last."""
    return [
        {"worker": w.name, "actor": s.actor, "task": s.task, "seconds": max(0.0, (now - s.since).total_seconds())}
        for w in workers
        for s in w.hung
    ]


def _table(found: dict[str, Any]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from recovery.cli.output import short, whole_words

    table = Table(box=None, show_header=False, padding=(0, 2))
    for part in ("processes", "decisions"):
        for place, (state, count) in enumerate(found[part].items()):
            table.add_row(Text("" if place else part, style="bold"), state, f"{count:,}")
    for place, (name, queue) in enumerate(found["queues"].items()):
        last = queue["polled_seconds_ago"]
        polled = "never polled" if last is None else f"polled {short(last)} ago"
        label = Text("" if place else "queues", style="bold")
        counts = [f"{queue['tasks']:,} waiting"]
        counts += [f"{queue[key]:,} {what}" for key, what in TO_COME.items() if queue[key]]
        table.add_row(label, name, ", ".join(counts), polled, Text(queue["problem"] or "", style="red"))
    if not found["queues"]:
        table.add_row(Text("queues", style="bold"), "none: no worker has ever run here")
    names = ", ".join(worker["name"] for worker in found["workers"]) or "none"
    table.add_row(Text("workers", style="bold"), names, f"{len(found['workers'])} alive")
    for place, slot in enumerate(found["hung"]):
        since = f"for {short(slot['seconds'])}, on {slot['worker']}"
        table.add_row(Text("" if place else "hung slots", style="bold"), slot["actor"], slot["task"], since)
    for place, (name, freed) in enumerate(found["freed"].items()):
        last = f"last {short(freed['seconds_ago'])} ago"
        table.add_row(Text("" if place else "freed of hangs", style="bold"), name, f"{freed['slots']:,} slots", last)
    for place, (name, late) in enumerate(found["overdue"].items()):
        oldest = f"oldest {short(late['oldest_seconds'])}" if late["count"] else ""
        table.add_row(Text("" if place else "overdue", style="bold"), name, f"{late['count']:,}", oldest)
    return whole_words(table)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command(help=paragraphs(HELP))(status)
