"""`recovery find` and `recovery list`: which processes there are, by what is asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.command_options import Command, JsonOption, paragraphs
from recovery.cli.output import seconds_between
from recovery.cli.shell_completion import complete_search, complete_state, complete_type
from recovery.wording import show_age

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import Console

    from recovery.engine import Resources
    from recovery.records import Process
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
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json
    from recovery.engine.operators.saved_searches import read_search, unknown_types
    from recovery.errors import InputError

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


def list_(
    process_type: Annotated[
        str | None, typer.Option("--type", help="Only of this process type.", autocompletion=complete_type)
    ] = None,
    state: Annotated[
        str | None, typer.Option(help="running, finished, broken or aborted.", autocompletion=complete_state)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many.")] = 20,
    json: JsonOption = False,
) -> None:
    from recovery.cli.connection import connect
    from recovery.engine.lookup import hint, unknown_type
    from recovery.errors import InputError
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
    from recovery.cli.output import console, messages, print_json, print_rows

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


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command("find", cls=Command, help=paragraphs(FIND))(find)
    app.command("list", cls=Command, help=paragraphs(LIST))(list_)
