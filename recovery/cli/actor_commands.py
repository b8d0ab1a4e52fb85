"""`recovery actor`: settings of actors, changed while workers run, and blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from recovery.cli.command_options import JsonOption, ReasonOption
from recovery.cli.connection import connect
from recovery.cli.output import print_answer, print_rows, seconds_between
from recovery.cli.override_commands import Found, OverridesGroup, group
from recovery.cli.shell_completion import complete_actor
from recovery.wording import show_age

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.engine import Resources
    from recovery.engine.operators.overrides import ActorOverrides
    from recovery.records import ActorPreferences, Stored

BLOCK_HELP = """Begin no task of an actor any more; what runs goes on, and what waits is kept.

Example: [bold]recovery actor block charge_card --reason "the bank is away"[/bold]
"""
UNBLOCK_HELP = """Begin tasks of an actor again, with what has waited meanwhile.

Example: [bold]recovery actor unblock charge_card[/bold]
"""
FORGET_HELP = """Forget an actor that is gone for good: its settings, its queue, and messages left in it.

Refused while tasks of it are not done, be they queued, delayed, worked on or waiting for other tasks, while a worker
serves it, and while it is blocked.

Example: [bold]recovery actor forget charge_card_v1[/bold]
"""


Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, autocompletion=complete_actor)]


def block(name: Name, reason: ReasonOption = "", json: JsonOption = False) -> None:
    changed = _overrides()(connect()).block(name, reason)
    was = "is blocked" if changed else "was blocked already"
    text = f"{name} {was}: no task of it begins, and what waits is kept. `recovery actor unblock {name}` ends that"
    print_answer("actor block", {"name": name, "changed": changed, "blocked": True}, text, json=json)


def unblock(name: Name, reason: ReasonOption = "", json: JsonOption = False) -> None:
    changed = _overrides()(connect()).unblock(name, reason)
    text = f"{name} is unblocked: its tasks begin" if changed else f"{name} was not blocked; nothing has changed"
    print_answer("actor unblock", {"name": name, "changed": changed, "blocked": False}, text, json=json)


def forget(name: Name, reason: ReasonOption = "", json: JsonOption = False) -> None:
    from recovery.engine.operators.abort import forget_actor

    overrides = forget_actor(connect(), name, reason)
    with_it = f", and with it what was set: {', '.join(overrides)}" if overrides else ""
    text = f"{name} is forgotten{with_it}; a worker that serves it makes it known again"
    print_answer("actor forget", {"name": name, "unset": sorted(overrides)}, text, json=json)


def look(resources: Resources) -> dict[str, Found]:
    """Return all actors as JSON has them. Ages are in seconds."""
    store = resources.store
    actors, polled, now = store.actors.stored(), store.queues.all(), store.now()
    waiting = store.waiting.by_actor()
    names = sorted({*actors, *waiting})
    depths = resources.broker.depths(names) if names else {}
    workers = store.overview.workers_alive()
    return {
        name: {
            "tasks": waiting[name].tasks if name in waiting else 0,
            "depth": depths[name],
            "consumers": sum(name in worker.queues and name not in worker.paused for worker in workers),
            "polled_seconds_ago": seconds_between(polled[name].polled_at if name in polled else None, now),
            # One that no worker told of yet has tasks that wait, and no settings.
            **(_one(actors[name]) if name in actors else {"blocked": False, "settings": {}}),
        }
        for name in names
    }


def _overrides() -> type[ActorOverrides]:
    from recovery.engine.operators.overrides import ActorOverrides

    return ActorOverrides


def _one(stored: Stored[ActorPreferences]) -> Found:
    from recovery.cli.setting_values import describe_settings

    return {"blocked": stored.blocked, "settings": describe_settings(stored)}


def _print(out: Console, found: dict[str, Found]) -> None:
    from recovery.cli.setting_values import overridden

    if not found:
        out.print("none: no worker has ever run here")
        return
    busy = {name: one for name, one in found.items() if _is_busy(one)}
    rows = []
    for name, one in busy.items():
        last = one["polled_seconds_ago"]
        polled = "never" if last is None else f"{show_age(last)} ago"
        state = Text("blocked" if one["blocked"] else "", style="red")
        rows.append((name, f"{one['tasks']:,}", str(one["consumers"]), polled, state, overridden(one["settings"])))
    headers = ("actor", "waiting", "consumers", "polled", "state", "set")
    if rows:
        print_rows(out, headers, rows, right=("waiting", "consumers"))
    idle = [name for name in found if name not in busy]
    served = [name for name in idle if found[name]["consumers"]]
    unserved = [name for name in idle if not found[name]["consumers"]]
    for label, names in (("idle", served), ("idle, without a worker", unserved)):
        if names:
            out.print(f"{label}: {', '.join(names)}")


def _is_busy(actor: Found) -> bool:
    """Whether an actor has a line of its own: tasks wait for it, it is blocked, or something is set."""
    from recovery.cli.setting_values import overridden

    return bool(actor["tasks"] or actor["blocked"] or overridden(actor["settings"]))


commands = group(
    OverridesGroup(
        name="actor",
        complete=complete_actor,
        group_help="""Settings of actors, and which are blocked, changed while workers run.

What is set here wins over the code and survives restarts and deployments, until it is unset. Workers take it up
at once, or within seconds where they can't be told.

Example: [bold]recovery actor set charge_card worker_timeout=90s max_work_timeouts=3[/bold]
""",
        list_help="""List actors: what waits, who consumes it, and what is set. Idle ones are on one line.

Example: [bold]recovery actor list --json[/bold]
""",
        show_help="""Show an actor's settings, and where each comes from.

Example: [bold]recovery actor show charge_card[/bold]
""",
        set_help="""Set settings of an actor over what its code says.

Times are seconds, or have a unit: 90, 90s, 2m, 1h, 1d. What runs keeps its deadline until its next heartbeat.

Example: [bold]recovery actor set charge_card worker_timeout=90s[/bold]
""",
        unset_help="""Let an actor's code decide settings again.

Example: [bold]recovery actor unset charge_card worker_timeout[/bold]
""",
        overrides=_overrides,
        look=look,
        one=_one,
        print_all=_print,
        plural="actors",
        needs_redis=True,
    )
)
commands.add(BLOCK_HELP)(block)
commands.add(UNBLOCK_HELP)(unblock)
commands.add(FORGET_HELP)(forget)
