"""`recovery status`: the state of the cluster, in counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from recovery.addresses import public
from recovery.cli.command_options import ERROR, Commands, JsonOption
from recovery.cli.connection import connect
from recovery.cli.output import Labelled, console, line, print_json, seconds_between
from recovery.errors import ServerUnavailable
from recovery.wording import count, show_age

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from rich.text import Text

    from recovery.engine import Resources
    from recovery.records import Worker
    from recovery.store import ActorQueue

HELP = """Show the cluster's servers, processes and tasks by state, queues, workers, and what is overdue.

Queues in which nothing waits are on one line. Tasks are counted while something is to happen to them:
[italic]applying[/italic] are finished ones whose effects are on the way, [italic]at rest[/italic] are those that wait
for others or are done.

If Redis does not answer, all that is in MongoDB is shown, and the command ends with 2.

Costs what is live, not what exists, so it may be asked of a cluster that is busy. What is overdue by more than a few
seconds is not seen to: no scanner runs, since there is no beat or no worker.

Example: [bold]recovery status --json[/bold]
"""
LABEL = 13
RECORDS = {"decisions": "task", "graphs": "graph", "processes": "process", "schedules": "schedule"}
"""{collection: what people call a record of it}."""
TO_COME = {"delayed": "delayed", "after_others": "after other tasks"}
"""What is shown of the tasks that are not queued yet: counted of actors that no worker serves."""

commands = Commands()


@commands.add(HELP)
def status(json: JsonOption = False) -> None:
    found = look(connect(needs_redis=False))
    if json:
        print_json("status", found)
    else:
        rows = [(Text(label, style="bold"), text) for label, text in _rows(found)]
        console().print(Labelled(rows, LABEL))
    if found["redis_problem"]:
        raise typer.Exit(ERROR)


def look(resources: Resources) -> dict[str, Any]:
    """Return the status as JSON has it. Ages are in seconds."""
    from recovery.store.views.overview import DEADLINES

    overview, store = resources.store.overview, resources.store
    now, polled, actors = store.now(), store.queues.all(), store.waiting.by_actor()
    names = sorted({*actors, *polled})
    depths, silent = _depths(resources, names)
    queues = {}
    for name in names:
        last = polled[name].polled_at if name in polled else None
        queues[name] = {
            "depth": depths.get(name),
            "polled_seconds_ago": seconds_between(last, now),
            **_waiting(actors.get(name)),
        }
    overdue, alive = overview.overdue(), overview.workers_alive()
    return {
        "mongodb": public(resources.settings.mongo_uri),
        "redis": public(resources.settings.broker_url),
        "redis_problem": silent,
        "database": resources.settings.database,
        "processes": overview.processes(),
        "decisions": overview.decisions(),
        "queues": queues,
        "workers": [{"name": w.name, "queues": list(w.queues)} for w in alive],
        "hung": _hung(alive, now),
        "freed": {
            one.id: {"slots": one.slots, "seconds_ago": seconds_between(one.at, now)} for one in store.hung.freed()
        },
        "markers": store.markers.counts(),
        "disabled": sorted(name for name, one in store.process_types.stored().items() if one.disabled is not None),
        "overdue": {
            name: {"count": overdue[name], "oldest_seconds": overview.oldest_overdue(name)} for name in DEADLINES
        },
    }


def _depths(resources: Resources, names: Sequence[str]) -> tuple[dict[str, int], str | None]:
    """Return how many messages wait in each queue; if Redis does not answer, none and the reason.

    All else is in MongoDB. Raises ServerRefused.
    """
    try:
        resources.broker.check()
    except ServerUnavailable as error:
        return {}, str(error)
    return resources.broker.depths(names) if names else {}, None


def _waiting(queue: ActorQueue | None) -> dict[str, Any]:
    """Return what waits by the records, and for whom, whatever became of its messages."""
    from recovery.health import untaken_tasks

    return {
        "tasks": queue.tasks if queue else 0,
        "oldest_seconds": queue.waiting_seconds if queue else None,
        # Of those that no worker serves.
        "delayed": queue.to_come.delayed if queue else 0,
        "after_others": queue.to_come.after_others if queue else 0,
        "workers": list(queue.workers) if queue else [],
        "blocked_seconds": queue.blocked_seconds if queue else None,
        "problem": untaken_tasks.trouble(queue),
    }


def _hung(workers: Sequence[Worker], now: datetime) -> list[dict[str, Any]]:
    """Return the slots that hang, by the last heartbeats of their workers."""
    return [
        {"worker": w.name, "actor": s.actor, "task": s.task, "seconds": max(0.0, (now - s.since).total_seconds())}
        for w in workers
        for s in w.hung
    ]


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, str | Text]]:
    """Yield the label and the text of each line."""
    yield "MongoDB", f"{found['mongodb']}, database {found['database']}"
    yield "Redis", found["redis_problem"] or found["redis"]
    yield "processes", ", ".join(f"{number:,} {state}" for state, number in found["processes"].items())
    yield "tasks", ", ".join(f"{number:,} {state}" for state, number in found["decisions"].items())
    yield from _labelled("queues", _queues(found["queues"]), "none: no worker has ever run here")
    names = ", ".join(worker["name"] for worker in found["workers"])
    yield "workers", f"{len(found['workers'])} alive{f': {names}' if names else ''}"
    hung = (f"{s['actor']} {s['task']} for {show_age(s['seconds'])}, on {s['worker']}" for s in found["hung"])
    yield from _labelled("hung slots", hung)
    freed = (
        f"{name}: {count(one['slots'], 'slot')}, the last {show_age(one['seconds_ago'])} ago"
        for name, one in found["freed"].items()
    )
    yield from _labelled("freed slots", freed)
    markers = (
        f"{name}: {count(number, 'marker')}, `recovery marker list`" for name, number in found["markers"].items()
    )
    yield from _labelled("not started", [*markers, *(f"{name}: disabled" for name in found["disabled"])])
    overdue = (
        f"{count(late['count'], RECORDS[name])}, the oldest for {show_age(late['oldest_seconds'])}"
        for name, late in found["overdue"].items()
        if late["count"]
    )
    yield from _labelled("overdue", overdue, "nothing")


def _labelled(label: str, texts: Iterable[str | Text], none: str = "") -> Iterator[tuple[str, str | Text]]:
    """Yield the texts, the first with the label. Without a text, yield `none`, if it is given."""
    found = list(texts) or ([none] if none else [])
    yield from ((label if place == 0 else "", text) for place, text in enumerate(found))


def _queues(queues: dict[str, dict[str, Any]]) -> Iterator[str | Text]:
    """Yield a line for each queue with waiting or coming tasks, and one line for all others."""
    from recovery.health.model import join_names

    idle = [name for name, queue in queues.items() if not _is_busy(queue)]
    yield from (_queue((name, queue)) for name, queue in queues.items() if _is_busy(queue))
    if idle:
        yield f"{f'{len(idle):,} ' if len(idle) > 1 else ''}idle: {join_names(idle)}"


def _is_busy(queue: dict[str, Any]) -> bool:
    waits = queue["tasks"] or any(queue[key] for key in TO_COME)
    return bool(waits or queue["problem"] or queue["blocked_seconds"] is not None)


def _queue(named: tuple[str, dict[str, Any]]) -> Text:
    name, queue = named
    last = queue["polled_seconds_ago"]
    parts = [f"{queue['tasks']:,} waiting"]
    parts += [f"{queue[key]:,} {what}" for key, what in TO_COME.items() if queue[key]]
    parts.append("never polled" if last is None else f"polled {show_age(last)} ago")
    trouble = queue["problem"] or ("blocked" if queue["blocked_seconds"] is not None else "")
    problem = f"; {trouble}" if trouble else ""
    return line((f"{name}  ", "bold"), ", ".join(parts), (problem, "red"))
