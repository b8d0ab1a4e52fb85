"""`recovery start` and `recovery show`: one process."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from recovery.cli.output import AppOption, finite, paragraphs

START_HELP = """Start a process of your application and print its id.

Each ARG is JSON, or plain text if it is not JSON: 3, true, '{"sku": 7}' and blue are a number, a truth value, an
object and a text ('"3"' is the text 3). With --wait its result is printed as JSON once it has ended; should it wait for
an actor that no worker serves, or that is blocked, that is told at once.

Ends with 0 if it was started, and with --wait finished; 1 if it broke or was aborted, 2 if it could not be started, 3
if it still runs after the time given.

Example: [bold]recovery start order 4711 '{"sku": "A-1", "count": 2}' --app shop.orders:app --wait 30[/bold]
"""
SHOW_HELP = """Show a process: its state, and its tasks under those that scheduled them.

Where there are over 200 tasks, those of one actor and state are counted together.

Example: [bold]recovery show 0198c1d2e3f47a5b8c9d0e1f2a3b4c5d[/bold]
"""


def start(
    process_type: Annotated[str, typer.Argument(metavar="TYPE", help="A process type of the application.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARG", help="JSON, or plain text.", show_default=False)
    ] = None,
    app: AppOption = None,
    custom_id: Annotated[
        str | None, typer.Option(help="Your name for it; if a process has it, that one's id is printed.")
    ] = None,
    any_arguments: Annotated[
        bool, typer.Option("--any-arguments", help="With --custom-id: also if that one has other arguments.")
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", callback=finite, help="Wait so long for the result, and print it."),
    ] = None,
) -> None:
    from recovery.cli.awaiting import await_result
    from recovery.cli.output import connect, console
    from recovery.engine import load_app
    from recovery.printable import printable_json
    from recovery.records.values import plain_failure
    from recovery.settings import load

    recovery_app, values = load_app(load(app=app).app), [value(text) for text in arguments or ()]
    connect(recovery_app.settings)
    process_id = recovery_app.start(process_type, *values, custom_id=custom_id, any_arguments=any_arguments)
    console().print(process_id)
    if wait is not None:
        result = await_result(recovery_app, process_id, wait)
        print(printable_json(json.dumps(result, ensure_ascii=False, default=plain_failure)))


def value(text: str) -> Any:
    """An argument from the command line."""
    from recovery.errors import InputError

    try:
        return json.loads(text, parse_constant=_refuse)
    except (json.JSONDecodeError, _NotJson):
        return text
    except RecursionError:
        raise InputError(f"{text[:40]}…: is nested too deeply; an argument has at most 100 levels") from None
    except ValueError:  # Python reads no number of thousands of digits
        raise InputError(f"{text[:40]}…: is too long a number; pass it as a text, in quotes: '\"…\"'") from None


class _NotJson(Exception):
    """What Python reads as JSON and JSON has not: NaN and Infinity."""


def _refuse(name: str) -> Any:
    raise _NotJson(name)


def show(process_id: Annotated[str, typer.Argument(metavar="PROCESS_ID")]) -> None:
    from recovery.cli.output import connect, console
    from recovery.cli.tree import RESULT_SHOWN, heading, tree
    from recovery.engine.lookup import not_found
    from recovery.health import waiting
    from recovery.records import given

    resources = connect()
    process_id = given.text(process_id, "PROCESS_ID")
    found = resources.store.processes.shown(process_id, RESULT_SHOWN)
    if found is None:
        raise not_found(resources, process_id)
    process, characters = found
    overview = resources.store.overview
    # Tasks first: a decision that is read has its task's line then, or belongs to one made since.
    lines, decisions = overview.task_lines(process_id), overview.decisions_of(process_id)
    # And who serves them last: whoever comes meanwhile makes nothing look lonely.
    lonely = waiting.reasons(resources.store.waiting.by_actor(count_served=False))
    out = console()
    now = resources.store.now()
    for line in heading(process, characters, now):
        out.print(line, soft_wrap=True)
    out.print(tree(process.start_task, lines, decisions, now, lonely))


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command(help=paragraphs(START_HELP))(start)
    app.command(help=paragraphs(SHOW_HELP))(show)
