"""`recovery schedule`: process types that start by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli import schedule_operations
from recovery.cli.command_options import Commands, JsonOption, ReasonOption
from recovery.cli.connection import connect
from recovery.cli.output import console, print_answer, print_json
from recovery.cli.schedule_operations import print_changed
from recovery.cli.shell_completion import complete_schedule, complete_type

if TYPE_CHECKING:
    from recovery.engine.operators.schedules import Schedules

GROUP = """Process types that start by themselves, on crontabs and intervals; and operations that are ordered so.

What is set here wins over the code and survives deployments, until it is unset.

Example: [bold]recovery schedule next '30 2 * * *' --time-zone Europe/Berlin[/bold]
"""
ADD = """Add a schedule for a process type: when it is started, and with what.

Example: [bold]recovery schedule add hourly replicate schedule=1h overlap=queue[/bold]
"""
LIST = """List schedules: when each is due, what became of it, and what operators set.

Example: [bold]recovery schedule list[/bold]
"""
SHOW = """Show a schedule: its settings and where each comes from, its last slots, and what operators did.

Example: [bold]recovery schedule show replicate[/bold]
"""
SET = """Set settings of a schedule over what its code says.

Settings are schedule, time_zone, arguments (JSON), overlap (skip, queue, allow), catch_up (none, one, all),
catch_up_limit, jitter, starts_at, ends_at, retry_across and retry_across_count.

Example: [bold]recovery schedule set replicate 'schedule=*/30 * * * *' jitter=1m[/bold]
"""
UNSET = """Let a schedule's code decide settings again.

Example: [bold]recovery schedule unset replicate jitter[/bold]
"""
PAUSE = """Start nothing more by a schedule until it is resumed. What runs goes on.

Example: [bold]recovery schedule pause replicate --reason "the source is moved"[/bold]
"""
RESUME = """Start processes by a schedule again, from the next slot on.

Example: [bold]recovery schedule resume replicate[/bold]
"""
ENABLE = """Enable a schedule again that its own failures disabled, from the next slot on.

Example: [bold]recovery schedule enable replicate --reason "the source is back"[/bold]
"""
REMOVE = """Remove a schedule that was added here. What it started goes on.

Example: [bold]recovery schedule remove hourly[/bold]
"""
NEXT = """Show the next slots of a schedule, or of a crontab or interval that is given: that asks no server.

Example: [bold]recovery schedule next '30 2 * * *' --time-zone Europe/Berlin -n 3[/bold]
"""
TRIGGER = """Start an instance of a schedule now, beside its slots. Refused while the previous one runs, unless
overlap=allow.

Example: [bold]recovery schedule trigger replicate --reason "after the repair"[/bold]
"""
MAX_SHOWN = 1000

commands = Commands("schedule", GROUP)

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, autocompletion=complete_schedule)]
Reason = Annotated[str, typer.Option("--reason", help="Kept with the schedule and in the audit log.")]
Needed = Annotated[
    str, typer.Option("--reason", help="Kept with the schedule and in the audit log; needed.", show_default=False)
]
Assignments = Annotated[list[str], typer.Argument(metavar="SETTING=VALUE", show_default=False)]
Names = Annotated[list[str], typer.Argument(metavar="SETTING", show_default=False)]


@commands.add(ADD)
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    process_type: Annotated[str, typer.Argument(metavar="TYPE", show_default=False, autocompletion=complete_type)],
    settings: Assignments,
    reason: Reason = "",
    json: JsonOption = False,
) -> None:
    from recovery.schedule import assignments

    said = assignments(settings, f"schedule {name}")
    print_changed("add", _schedules().add(name, process_type, said, reason), "added", json)


schedule_operations.add_to(commands)


@commands.add(LIST, "list")
def list_(json: JsonOption = False) -> None:
    from recovery.cli.schedule_view import as_dict, print_all

    read = connect(needs_redis=False).store.schedules.all_with_damaged()
    found, damaged = {one.id: one for one in read.records}, [str(one) for one in read.damaged]
    if json:
        told = {name: as_dict(one) for name, one in found.items()}
        print_json("schedule list", {"schedules": told, "damaged": damaged})
    else:
        print_all(console(), found, damaged)


@commands.add(SHOW)
def show(name: Name, json: JsonOption = False) -> None:
    from recovery.cli.schedule_view import as_dict, print_one

    schedule = _schedules(needs_redis=False).get(name)
    if json:
        print_json("schedule show", {"name": name, **as_dict(schedule)})
    else:
        print_one(console(), name, schedule)


@commands.add(SET, "set")
def set_(name: Name, settings: Assignments, reason: Reason = "", json: JsonOption = False) -> None:
    from recovery.schedule import assignments

    said = assignments(settings, f"schedule {name}")
    print_changed("set", _schedules().set(name, said, reason), f"set {', '.join(said)}", json)


@commands.add(UNSET)
def unset(name: Name, settings: Names, reason: Reason = "", json: JsonOption = False) -> None:
    print_changed("unset", _schedules().unset(name, settings, reason), f"unset {', '.join(settings)}", json)


@commands.add(PAUSE)
def pause(name: Name, reason: Needed = "", json: JsonOption = False) -> None:
    print_changed("pause", _schedules().pause(name, reason), "paused", json)


@commands.add(RESUME)
def resume(name: Name, reason: Reason = "", json: JsonOption = False) -> None:
    print_changed("resume", _schedules().resume(name, reason), "resumed", json)


@commands.add(ENABLE)
def enable(name: Name, reason: Needed = "", json: JsonOption = False) -> None:
    print_changed("enable", _schedules().enable(name, reason), "enabled", json)


@commands.add(REMOVE)
def remove(name: Name, reason: ReasonOption = "", json: JsonOption = False) -> None:
    schedule = _schedules().remove(name, reason)
    print_answer(
        "schedule remove",
        {"name": name, "type": schedule.type if schedule is not None else None},
        f"{name} is removed; what it started goes on",
        json=json,
    )


@commands.add(NEXT, "next")
def next_(
    schedule: Annotated[
        str,
        typer.Argument(
            metavar="NAME|CRONTAB|INTERVAL", show_default=False, autocompletion=complete_schedule, help="Of what."
        ),
    ],
    number: Annotated[int, typer.Option("-n", min=1, max=MAX_SHOWN, help="How many slots.")] = 5,
    time_zone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Of a crontab that is given; default: UTC.")
    ] = None,
    after: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="The first slots after this, ISO 8601; default: now.")
    ] = None,
    json: JsonOption = False,
) -> None:
    from recovery.cli.schedule_next import print_slots

    print_slots(schedule, number, time_zone, after, json)


@commands.add(TRIGGER)
def trigger(
    name: Name,
    reason: Reason = "",
    force: Annotated[bool, typer.Option("--force", help="Also beside one that runs.")] = False,
    json: JsonOption = False,
) -> None:
    result = _schedules().trigger(name, reason, force=force)
    if json:
        found = {"name": name, "process": result.process, "operation": result.operation, "slot": result.slot}
        print_json("schedule trigger", found)
    else:
        console().print(result.process or f"operation {result.operation}")


def _schedules(*, needs_redis: bool = True) -> Schedules:
    from recovery.engine.operators.schedules import Schedules

    return Schedules(connect(needs_redis=needs_redis))
