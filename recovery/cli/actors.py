"""`recovery actor` and `recovery process-type`: settings that are changed while workers run, and blocking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.output import JsonOption, paragraphs

if TYPE_CHECKING:
    from rich.console import RenderableType

    from recovery.engine import Resources

ACTOR_HELP = """Settings of actors, and which are blocked, changed while workers run.

What is set here wins over the code and survives restarts and deployments, until it is unset. Workers take it up
within seconds.

Example: [bold]recovery actor set charge_card worker_timeout=90s max_work_timeouts=3[/bold]
"""
TYPE_HELP = """Settings of process types, changed while workers run.

Example: [bold]recovery process-type set order process_timeout=1h[/bold]
"""
LIST_HELP = """List actors: what waits, who consumes it, and what is set.

Example: [bold]recovery actor list --json[/bold]
"""
SHOW_HELP = """Show an actor's settings, and where each comes from.

Example: [bold]recovery actor show charge_card[/bold]
"""
SET_HELP = """Set settings of an actor over what its code says.

Times are seconds, or have a unit: 90, 90s, 2m, 1h, 1d. What runs keeps its deadline until its next heartbeat.

Example: [bold]recovery actor set charge_card worker_timeout=90s[/bold]
"""
UNSET_HELP = """Let an actor's code decide settings again.

Example: [bold]recovery actor unset charge_card worker_timeout[/bold]
"""
BLOCK_HELP = """Begin no task of an actor any more; what runs goes on, and what waits is kept.

Example: [bold]recovery actor block charge_card[/bold]
"""
UNBLOCK_HELP = """Begin tasks of an actor again, with what has waited meanwhile.

Example: [bold]recovery actor unblock charge_card[/bold]
"""
TYPE_LIST_HELP = """List process types, and what is set.

Example: [bold]recovery process-type list[/bold]
"""
TYPE_SHOW_HELP = """Show a process type's settings, and where each comes from.

Example: [bold]recovery process-type show order[/bold]
"""
TYPE_SET_HELP = """Set settings of a process type over what its code says.

Times are seconds, or have a unit: 90, 90s, 2m, 1h, 1d. idle_timeout holds for processes that start from now on.

Example: [bold]recovery process-type set order process_timeout=1h break_after_process_timeout=true[/bold]
"""
TYPE_UNSET_HELP = """Let a process type's code decide settings again.

Example: [bold]recovery process-type unset order process_timeout[/bold]
"""

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Assignments = Annotated[list[str], typer.Argument(metavar="SETTING=VALUE", show_default=False)]
Names = Annotated[list[str], typer.Argument(metavar="SETTING", show_default=False)]


def list_actors(json: JsonOption = False) -> None:
    from recovery.cli.output import connect

    _print(look(connect()), json, _actors_table)


def look(resources: Resources) -> dict[str, Any]:
    """All actors, as JSON has them. Ages are in seconds."""
    from recovery.cli.output import seconds_between
    from recovery.cli.settings import told
    from recovery.store.overview import Overview

    store = resources.store
    actors, polled, now = store.actors.stored(), store.queues.all(), store.now()
    depths = resources.broker.depths(sorted(actors)) if actors else {}
    workers = Overview(store.database).workers_alive()
    return {
        name: {
            "depth": depths[name],
            "consumers": sum(name in worker.queues and name not in worker.paused for worker in workers),
            "polled_seconds_ago": seconds_between(polled[name].polled_at if name in polled else None, now),
            "blocked": stored.blocked,
            "settings": told(stored),
        }
        for name, stored in sorted(actors.items())
    }


def show_actor(name: Name, json: JsonOption = False) -> None:
    from recovery.cli.output import connect
    from recovery.cli.settings import told
    from recovery.engine import overrides

    stored = overrides.actor(connect(), name)
    _print({"name": name, "blocked": stored.blocked, "settings": told(stored)}, json, _one)


def set_actor(name: Name, settings: Assignments) -> None:
    from recovery.cli.output import connect
    from recovery.cli.settings import parse
    from recovery.engine import overrides
    from recovery.records import ActorPreferences

    changes = parse(ActorPreferences, settings)
    overrides.set_actor(connect(), name, changes)


def unset_actor(name: Name, settings: Names) -> None:
    from recovery.cli.output import connect
    from recovery.engine import overrides

    overrides.unset_actor(connect(), name, settings)


def block(name: Name) -> None:
    from recovery.cli.output import connect, messages
    from recovery.engine import overrides

    if not overrides.block(connect(), name):
        messages().print(f"{name} was blocked already")


def unblock(name: Name) -> None:
    from recovery.cli.output import connect, messages
    from recovery.engine import overrides

    if not overrides.unblock(connect(), name):
        messages().print(f"{name} was not blocked")


def list_types(json: JsonOption = False) -> None:
    from recovery.cli.output import connect
    from recovery.cli.settings import told

    stored = connect().store.process_types.stored()
    _print({name: {"settings": told(one)} for name, one in sorted(stored.items())}, json, _types_table)


def show_type(name: Name, json: JsonOption = False) -> None:
    from recovery.cli.output import connect
    from recovery.cli.settings import told
    from recovery.engine import overrides

    _print({"name": name, "settings": told(overrides.process_type(connect(), name))}, json, _one)


def set_type(name: Name, settings: Assignments) -> None:
    from recovery.cli.output import connect
    from recovery.cli.settings import parse
    from recovery.engine import overrides
    from recovery.records import ProcessTypePreferences

    changes = parse(ProcessTypePreferences, settings)
    overrides.set_process_type(connect(), name, changes)


def unset_type(name: Name, settings: Names) -> None:
    from recovery.cli.output import connect
    from recovery.engine import overrides

    overrides.unset_process_type(connect(), name, settings)


def _print(found: dict[str, Any], json: bool, table: Any) -> None:
    import json as json_module

    from recovery.cli.output import console

    if json:
        print(json_module.dumps(found))
    else:
        console().print(table(found))


def _actors_table(found: dict[str, Any]) -> RenderableType:
    from rich.table import Table

    from recovery.cli.output import short
    from recovery.cli.settings import overridden

    if not found:
        return "none: no worker has ever run here"
    table = Table("actor", "waiting", "consumers", "polled", "", "set", box=None, padding=(0, 2))
    for name, one in found.items():
        last = one["polled_seconds_ago"]
        polled = "never" if last is None else f"{short(last)} ago"
        state = "[red]blocked[/red]" if one["blocked"] else ""
        table.add_row(name, f"{one['depth']:,}", str(one["consumers"]), polled, state, overridden(one["settings"]))
    return table


def _types_table(found: dict[str, Any]) -> RenderableType:
    from rich.table import Table

    from recovery.cli.settings import overridden, shown

    if not found:
        return "none: no worker has ever run here"
    table = Table("process type", "idle_timeout", "process_timeout", "set", box=None, padding=(0, 2))
    for name, one in found.items():
        idle, whole = (shown(key, one["settings"][key]["value"]) for key in ("idle_timeout", "process_timeout"))
        table.add_row(name, idle, whole, overridden(one["settings"]))
    return table


def _one(found: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    from recovery.cli.settings import table

    state = " [red]blocked[/red]" if found.get("blocked") else ""
    return Group(f"[bold]{found['name']}[/bold]{state}", table(found["settings"]))


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    actors = typer.Typer(help=paragraphs(ACTOR_HELP), no_args_is_help=True)
    actors.command("list", help=paragraphs(LIST_HELP))(list_actors)
    actors.command("show", help=paragraphs(SHOW_HELP))(show_actor)
    actors.command("set", help=paragraphs(SET_HELP))(set_actor)
    actors.command("unset", help=paragraphs(UNSET_HELP))(unset_actor)
    actors.command("block", help=paragraphs(BLOCK_HELP))(block)
    actors.command("unblock", help=paragraphs(UNBLOCK_HELP))(unblock)
    app.add_typer(actors, name="actor")
    types = typer.Typer(help=paragraphs(TYPE_HELP), no_args_is_help=True)
    types.command("list", help=paragraphs(TYPE_LIST_HELP))(list_types)
    types.command("show", help=paragraphs(TYPE_SHOW_HELP))(show_type)
    types.command("set", help=paragraphs(TYPE_SET_HELP))(set_type)
    types.command("unset", help=paragraphs(TYPE_UNSET_HELP))(unset_type)
    app.add_typer(types, name="process-type")
