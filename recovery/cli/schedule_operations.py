"""`recovery schedule operation`: operations that are ordered by the clock; and the answer of a change of a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from recovery.cli import operation_options as options
from recovery.cli.command_options import YES, Commands, JsonOption, agree_to_removal
from recovery.cli.connection import connect
from recovery.cli.output import console, print_json, utc
from recovery.cli.shell_completion import complete_search

if TYPE_CHECKING:
    from recovery.records import Orders
    from recovery.records.schedule import Schedule

OPERATION = """Order an operation at each slot of a schedule, applied as soon as its plan is made.

KIND, SELECTION and options are those of `recovery operation start`; @NAME orders a copy of the operation that is saved
under this name. What is selected is counted from each slot on: ended:before(90d) is what ended longer than 90 days
before. A slot that comes while the operation before is under way is skipped.

Example: [bold]recovery schedule operation old collect 'ended:before(90d)' 'schedule=0 3 * * *' --reason "disk
space"[/bold]
"""


def operation(  # noqa: PLR0913
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    kind: options.KindOrSaved,
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[SELECTION] SETTING=VALUE...",
            show_default=False,
            autocompletion=complete_search,
            help="Which processes, as `recovery find` has it; then when, as in `recovery schedule add`.",
        ),
    ],
    all_: options.All = False,
    reason: Annotated[str, typer.Option("--reason", help="Kept with each operation; needed.", show_default=False)] = "",
    rate: options.Rate = None,
    priority: options.Priority = None,
    from_actor: options.FromActor = None,
    export: options.Export = None,
    format: options.Format = None,
    idle_timeout: options.IdleTimeout = None,
    thorough: options.Thorough = False,
    spark: options.Spark = None,
    parquet: options.Parquet = None,
    yes: Annotated[bool, typer.Option(YES, help="Of a collect: don't ask on a terminal.")] = False,
    json: JsonOption = False,
) -> None:
    from recovery.operations.commands import schedule_operation
    from recovery.schedule import assignments
    from recovery.search import stored_in_words

    selection, settings = ("", words) if _is_setting(words[0]) else (words[0], words[1:])
    asked = options.request(
        *(kind, selection, all_, priority),
        rate=rate,
        from_actor=from_actor,
        export=export,
        export_format=format,
        idle_timeout=idle_timeout,
        thorough=thorough,
        spark=spark,
        parquet=parquet,
    )
    said, resources = assignments(settings, f"schedule {name}"), connect()

    def confirm(orders: Orders) -> None:
        if not yes and orders.kind.value == "collect":
            words = stored_in_words(orders.selection, resources.store.now())
            agree_to_removal(words, ", and what is that old by then at each slot")

    added = schedule_operation(resources, name, asked, said, reason, confirm=confirm)
    print_changed("operation", added, "added", json)


def _is_setting(word: str) -> bool:
    """Return whether a word is SETTING=VALUE. No search begins so."""
    return word.partition("=")[0].isidentifier() and "=" in word


def print_changed(how: str, schedule: Schedule, done: str, json: bool) -> None:
    """Print a schedule after it was changed: its state, and when it is due."""
    from recovery.cli.schedule_view import as_dict, selection_in_words, why

    if json:
        print_json(f"schedule {how}", {"name": schedule.id, **as_dict(schedule)})
        return
    if schedule.state == "active" and schedule.next_slot is not None:
        then = f"next at {utc(schedule.next_slot)}"
    else:
        then = f"{schedule.state}: {why(schedule)}"
    console().print(f"{schedule.id}: {then if then.startswith(done) else f'{done}; {then}'}")
    if how == "operation" and schedule.orders is not None:
        words = selection_in_words(schedule.orders, schedule.next_slot)
        if schedule.orders.kind.value == "collect":
            console().print(f"it then removes {words}, if they are over")
        else:
            console().print(f"it then orders: {schedule.orders.kind.value}, of {words}")


def add_to(group: Commands) -> None:
    """Add the command of this module to those of `schedule_commands`."""
    group.add(OPERATION)(operation)
