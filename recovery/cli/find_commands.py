"""`recovery find`, `recovery list` and `recovery search`: which processes there are, by what is asked of them; and
searches that are saved under a name, which is `@NAME` in `recovery find` and in selections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.command_options import Commands, JsonOption, OfTypeOption
from recovery.cli.connection import connect
from recovery.cli.output import console, messages, print_answer, print_json, print_rows, seconds_between, utc
from recovery.cli.shell_completion import complete_saved, complete_search, complete_state
from recovery.errors import InputError
from recovery.wording import show_age

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

    from recovery.engine import Resources
    from recovery.records import Process, SavedSearch
    from recovery.store.views.search import Cost

FIND = """Find processes by what is asked of them, the oldest first.

A search is terms such as state:broken, error:TimeoutError, message:"connection refused", started:>2026-01-01,
idle:longer(1h), timeouts:>3 or overdue, combined by and (or a space), or, not and parentheses. docs/search.md has all
fields.

Example: [bold]recovery find 'type:order (state:broken or idle:longer(1h)) not error:Timeout*'[/bold]
"""
LIST = """List processes, the newest first.

Example: [bold]recovery list --state broken --limit 20[/bold]
"""
GROUP = """Save searches under names, list and remove them.

What is saved as stuck-orders is [italic]@stuck-orders[/italic] wherever a search is: alone, or as a term among others.

Example: [bold]recovery search save stuck-orders 'type:order state:running idle:longer(1h)'[/bold]
"""
SAVE = """Save a search under a name. Relative times in it count from when it is used.

It may have other saved searches in it: '@stuck-orders label.region:eu'.

Example: [bold]recovery search save stuck-orders 'type:order state:running idle:longer(1h)'[/bold]
"""
LIST_SAVED = """List saved searches, who saved each, and why.

Example: [bold]recovery search list[/bold]
"""
REMOVE = """Remove a saved search. Operations that were ordered with it keep the text that it had.

Example: [bold]recovery search remove stuck-orders[/bold]
"""

commands = Commands()
searches = Commands("search", GROUP)
commands.add_typer(searches)


@commands.add(FIND)
def find(
    query: Annotated[
        str, typer.Argument(metavar="SEARCH", show_default=False, autocompletion=complete_search, help="What is asked.")
    ],
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many at most.")] = 100,
    after: Annotated[str | None, typer.Option(metavar="ID", help="Only those after this process.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show what it costs, and find nothing.")] = False,
    slow: Annotated[bool, typer.Option("--slow", help="Though all processes may have to be gone through.")] = False,
    json: JsonOption = False,
) -> None:
    from recovery.engine.operators.saved_searches import read_search, unknown_types

    resources = connect(needs_redis=False)
    asked = read_search(resources, query)
    cost = resources.store.search.cost(asked)
    if explain:
        if json:
            told = {"search": query, "expanded": asked.text, "cost": _cost(cost)}
            print_json("find", {**told, "processes": None, "more_after": None})
        else:
            if asked.saved:
                console().print(f"search      {asked.text}")
            _print_cost(console(), cost)
        return
    if cost.slow and not slow:
        raise InputError(_slow(query, cost))
    found = resources.store.search.page(asked, after, limit)
    more = found[-1] if len(found) == limit else None
    unknown = unknown_types(resources, asked) if not found else []
    _print(
        *(resources, "find", found, unknown),
        json=json,
        search=query,
        expanded=asked.text,
        cost=_cost(cost),
        more_after=more,
    )


@commands.add(LIST, "list")
def list_(
    process_type: OfTypeOption = None,
    state: Annotated[
        str | None, typer.Option(help="running, finished, broken or aborted.", autocompletion=complete_state)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 20,
    json: JsonOption = False,
) -> None:
    from recovery.engine.lookup import hint, unknown_type
    from recovery.records import ProcessState, given

    known = [one.value for one in ProcessState]
    if state is not None and state not in known:
        raise InputError(f"--state {given.shown(state)}: {hint(state, known, 'there are none')}")
    wanted = given.text(process_type, "--type") if process_type is not None else None
    resources = connect(needs_redis=False)
    found = resources.store.search.newest(limit, state, wanted)
    unknown = unknown_type(resources, wanted) if wanted is not None and not found else None
    _print(resources, "list", found, [unknown] if unknown else [], json=json)


def _print(
    resources: Resources, command: str, ids: Sequence[str], unknown: Sequence[str], *, json: bool, **more: Any
) -> None:
    """Print processes; if there are none, with what is said of `unknown` process types."""
    briefs, now = resources.store.processes.committed_briefs(ids), resources.store.now()
    found = [briefs[one] for one in ids if one in briefs]
    if json:
        print_json(command, {**more, "processes": [_as_dict(one) for one in found]})
        return
    if not found:
        console().print("; ".join(["none", *unknown]))
        return
    rows = [_row(one, now) for one in found]
    print_rows(console(), ("process", "type", "state", "age", "custom id", "error"), rows)
    if last := more.get("more_after"):
        messages().print(f"there may be more: --after {last}", style="dim")


def _slow(query: str, cost: Cost) -> str:
    from recovery.store.views.search import SLOW_FROM

    if cost.indexed:
        return (
            f"{query!r} goes through more than {SLOW_FROM:,} processes that an index has. Ask for something more that "
            "has one (state:broken, error:…, message:…, code:…, label.…:…, rule:…, id:…), or give --slow"
        )
    return (
        f"{query!r} can use no index: up to {cost.processes:,} processes are gone through. Ask for something more that "
        "has one (type:…, state:running, state:broken, error:…, message:…, code:…, label.…:…, rule:…, id:…), or give "
        "--slow"
    )


def _row(process: Process, now: datetime) -> tuple[str, ...]:
    age = show_age(seconds_between(process.started_at, now)) if process.started_at else "?"
    error = process.error.kind if process.error is not None else ""
    return process.id, process.type, process.state.value, age, process.custom_id or "", error


def _as_dict(process: Process) -> dict[str, Any]:
    error = process.error
    return {
        "id": process.id,
        "type": process.type,
        "state": process.state.value,
        "custom_id": process.custom_id,
        "key": process.key,
        "started_at": process.started_at,
        "ended_at": process.ended_at,
        "error": {"kind": error.kind, "message": error.message, "code": error.code} if error is not None else None,
    }


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "candidates": list(cost.candidates),
        "exact": cost.exact,
        "slow": cost.slow,
        "indexed": cost.indexed,
        "processes": cost.processes,
    }


def _print_cost(out: Console, cost: Cost) -> None:
    for one in cost.candidates:
        out.print(f"candidates  {one}")
    asked = "they are the answer" if cost.exact else "each term is asked of 200 of them at once"
    out.print(f"then        {asked}")
    if cost.slow:
        many = "many of them" if cost.indexed else f"up to {cost.processes:,} processes"
        out.print(f"slow        {many} are gone through: takes --slow", style="yellow")


Reason = Annotated[str, typer.Option("--reason", help="Why; kept with it and in the audit log.", show_default=False)]


@searches.add(SAVE)
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
    from recovery.engine.operators.saved_searches import save_search

    saved = save_search(connect(needs_redis=False), name, search, reason, replace=replace)
    print_answer("search save", _saved_as_dict(saved), f"saved: `recovery find @{saved.id}` is {saved.text}", json=json)


@searches.add(LIST_SAVED, "list")
def list_saved(json: JsonOption = False) -> None:
    from recovery.engine.operators.saved_searches import unreadable

    resources = connect(needs_redis=False)
    found = resources.store.saved_searches.all()
    damaged = unreadable(resources, found)
    if json:
        rows = [{**_saved_as_dict(one), "error": damaged.get(name)} for name, one in found.items()]
        print_json("search list", {"searches": rows})
    else:
        shown = [_saved_row(one, damaged.get(name)) for name, one in found.items()]
        print_rows(console(), ("name", "search", "by", "saved", "reason"), shown, none="none")


@searches.add(REMOVE)
def remove(
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, autocompletion=complete_saved, help="As listed.")
    ],
    reason: Reason = "",
    json: JsonOption = False,
) -> None:
    from recovery.engine.operators.saved_searches import remove_search

    removed = remove_search(connect(needs_redis=False), name, reason)
    print_answer(
        "search remove", _saved_as_dict(removed), f"@{removed.id} is removed; it was {removed.text}", json=json
    )


def _saved_row(search: SavedSearch, damage: str | None) -> tuple[str, ...]:
    text = f"{search.text} (can't be read: {damage})" if damage else search.text
    return f"@{search.id}", text, search.by, utc(search.at), search.reason


def _saved_as_dict(search: SavedSearch) -> dict[str, Any]:
    return {
        "name": search.id,
        "search": search.text,
        "by": search.by,
        "reason": search.reason,
        "saved_at": search.at,
    }
