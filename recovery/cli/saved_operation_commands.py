"""`recovery operation save`, `saved` and `forget`: operations under names, which `operation start @NAME` starts and
`schedule operation` orders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli import operation_options as options
from recovery.cli.command_options import Commands, JsonOption
from recovery.cli.connection import connect
from recovery.cli.operation_texts import orders_dict
from recovery.cli.output import console, print_answer, print_json, print_rows, utc
from recovery.cli.shell_completion import complete_saved_operation

if TYPE_CHECKING:
    from recovery.records import SavedOperation

SAVE = """Save an operation under a name: its kind, its selection and its options.

Nothing is ordered. [italic]recovery operation start @NAME[/italic] starts it, and [italic]recovery schedule
operation[/italic] orders it by the clock. Relative times in its selection count from then.

Example: [bold]recovery operation save weekly-check check --all --thorough --rate 500[/bold]
"""
SAVED = """List saved operations, who saved each, and why.

Example: [bold]recovery operation saved[/bold]
"""
FORGET = """Forget a saved operation. Operations that were started by it, and schedules that order it, stay as they are.

Example: [bold]recovery operation forget weekly-check[/bold]
"""

Reason = Annotated[str, typer.Option("--reason", help="Why; kept with it and in the audit log.", show_default=False)]


def save(  # noqa: PLR0913
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", show_default=False, autocompletion=complete_saved_operation, help="A new one."),
    ],
    kind: options.Kind,
    selection: options.Selection = "",
    all_: options.All = False,
    reason: Reason = "",
    replace: Annotated[bool, typer.Option("--replace", help="In the place of the one that is there.")] = False,
    rate: options.Rate = None,
    priority: options.Priority = None,
    from_actor: options.FromActor = None,
    export: options.Export = None,
    format: options.Format = None,
    idle_timeout: options.IdleTimeout = None,
    thorough: options.Thorough = False,
    spark: options.Spark = None,
    parquet: options.Parquet = None,
    json: JsonOption = False,
) -> None:
    from recovery.operations.saved import as_typed, save_operation

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
    saved = save_operation(connect(needs_redis=False), name, asked, reason, replace=replace)
    told = f"saved: `recovery operation start @{saved.id} --reason ...` is {as_typed(saved)}"
    print_answer("operation save", _as_dict(saved), told, json=json)


def list_saved(json: JsonOption = False) -> None:
    from recovery.operations.saved import unreadable_operations

    resources = connect(needs_redis=False)
    found = resources.store.saved_operations.all()
    damaged = unreadable_operations(resources, found)
    if json:
        rows = [{**_as_dict(one), "error": damaged.get(name)} for name, one in found.items()]
        print_json("operation saved", {"operations": rows})
    else:
        shown = [_row(one, damaged.get(name)) for name, one in found.items()]
        print_rows(console(), ("name", "operation", "by", "saved", "reason"), shown, none="none")


def forget(
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", show_default=False, autocompletion=complete_saved_operation, help="As listed."),
    ],
    reason: Reason = "",
    json: JsonOption = False,
) -> None:
    from recovery.operations.saved import as_typed, forget_operation

    found = forget_operation(connect(needs_redis=False), name, reason)
    print_answer("operation forget", _as_dict(found), f"@{found.id} is forgotten; it was {as_typed(found)}", json=json)


def _row(saved: SavedOperation, damage: str | None) -> tuple[str, ...]:
    from recovery.operations.saved import as_typed

    text = f"{as_typed(saved)} (can't be read: {damage})" if damage else as_typed(saved)
    return f"@{saved.id}", text, saved.by, utc(saved.at), saved.reason


def _as_dict(saved: SavedOperation) -> dict[str, Any]:
    return {
        "name": saved.id,
        **orders_dict(saved),
        "by": saved.by,
        "reason": saved.reason,
        "saved_at": saved.at,
    }


def add_to(group: Commands) -> None:
    """Add the commands of this module to those of `operation_commands`."""
    group.add(SAVE)(save)
    group.add(SAVED, "saved")(list_saved)
    group.add(FORGET)(forget)
