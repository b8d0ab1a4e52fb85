"""`recovery search`: searches under a name, which is `@NAME` in `recovery find` and in selections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.command_options import Command, CommandGroup, JsonOption, paragraphs
from recovery.cli.shell_completion import complete_saved, complete_search

if TYPE_CHECKING:
    from recovery.records import SavedSearch

GROUP = """Save searches under names, list and remove them.

What is saved as stuck-orders is [italic]@stuck-orders[/italic] wherever a search is: alone, or as a term among others.

Example: [bold]recovery search save stuck-orders 'type:order state:running idle:longer(1h)'[/bold]
"""
SAVE = """Save a search under a name. Relative times in it count from when it is used.

It may have other saved searches in it: '@stuck-orders label.region:eu'.

Example: [bold]recovery search save stuck-orders 'type:order state:running idle:longer(1h)'[/bold]
"""
LIST = """List saved searches, who saved each, and why.

Example: [bold]recovery search list[/bold]
"""
REMOVE = """Remove a saved search. Operations that were ordered with it keep the text that it had.

Example: [bold]recovery search remove stuck-orders[/bold]
"""

group = typer.Typer(
    name="search", cls=CommandGroup, help=paragraphs(GROUP), no_args_is_help=True, rich_markup_mode="rich"
)
Reason = Annotated[str, typer.Option("--reason", help="Why; kept with it and in the audit log.", show_default=False)]


@group.command(cls=Command, help=paragraphs(SAVE))
def save(
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, autocompletion=complete_saved, help="A new one.")
    ],
    search: Annotated[
        str,
        typer.Argument(
            metavar="SEARCH", show_default=False, autocompletion=complete_search, help="As `recovery find` has it."
        ),
    ],
    reason: Reason = "",
    replace: Annotated[bool, typer.Option("--replace", help="In the place of the one that is there.")] = False,
    json: JsonOption = False,
) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import print_answer
    from recovery.engine.operators.saved_searches import save_search

    saved = save_search(connect(needs_redis=False), name, search, reason, replace=replace)
    print_answer("search save", _as_dict(saved), f"saved: `recovery find @{saved.id}` is {saved.text}", json=json)


@group.command("list", cls=Command, help=paragraphs(LIST))
def list_(json: JsonOption = False) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json, print_rows
    from recovery.engine.operators.saved_searches import unreadable

    resources = connect(needs_redis=False)
    found = resources.store.saved_searches.all()
    damaged = unreadable(resources, found)
    if json:
        rows = [{**_as_dict(one), "error": damaged.get(name)} for name, one in found.items()]
        print_json("search list", {"searches": rows})
    elif not found:
        console().print("none")
    else:
        shown = [_row(one, damaged.get(name)) for name, one in found.items()]
        print_rows(console(), ("name", "search", "by", "saved", "reason"), shown)


@group.command(cls=Command, help=paragraphs(REMOVE))
def remove(
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, autocompletion=complete_saved, help="As listed.")
    ],
    reason: Reason = "",
    json: JsonOption = False,
) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import print_answer
    from recovery.engine.operators.saved_searches import remove_search

    removed = remove_search(connect(needs_redis=False), name, reason)
    print_answer("search remove", _as_dict(removed), f"@{removed.id} is removed; it was {removed.text}", json=json)


def _row(search: SavedSearch, damage: str | None) -> tuple[str, ...]:
    at = f"{search.at:%Y-%m-%d %H:%M:%S} UTC" if search.at else "?"
    text = f"{search.text} (can't be read: {damage})" if damage else search.text
    return f"@{search.id}", text, search.by, at, search.reason


def _as_dict(search: SavedSearch) -> dict[str, Any]:
    return {
        "name": search.id,
        "search": search.text,
        "by": search.by,
        "reason": search.reason,
        "saved_at": search.at,
    }


def add_to(commands: typer.Typer) -> None:
    """Register the commands of this module."""
    commands.add_typer(group)
