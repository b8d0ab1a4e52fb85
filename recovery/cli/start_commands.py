"""`recovery start`: one process."""

from __future__ import annotations

import json as json_module
from typing import Annotated, Any, cast

import typer

from recovery.cli.command_options import DURATION, AppOption, Command, JsonOption, duration, paragraphs
from recovery.cli.shell_completion import complete_type

START_HELP = """Start a process of your application and print its id.

Each ARG is JSON, or plain text if it is not JSON: 3, true, '{"sku": 7}' and blue are a number, a truth value, an
object and a text ('"3"' is the text 3). With --wait its result is printed as JSON once it has ended; should it wait for
an actor that no worker serves, or that is blocked, or should no beat nudge, that is told within 5 s. Ctrl-C
ends the waiting, not the process.

Ends with 0 if it was started, and with --wait finished; 1 if it broke or was aborted, 2 if it could not be started, 3
if it still runs after the time given.

Example: [bold]recovery start order 4711 '{"sku": "A-1", "count": 2}' --app shop.orders:app --wait 30s[/bold]
"""


def start(  # noqa: PLR0913
    process_type: Annotated[
        str, typer.Argument(metavar="TYPE", help="A process type of the application.", autocompletion=complete_type)
    ],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARG", help="JSON, or plain text.", show_default=False)
    ] = None,
    app: AppOption = None,
    custom_id: Annotated[
        str | None, typer.Option(help="Your name for it, unique among its type; see --if-exists.")
    ] = None,
    any_arguments: Annotated[
        bool, typer.Option("--any-arguments", help="With --custom-id: also if that one has other arguments.")
    ] = False,
    if_exists: Annotated[
        str,
        typer.Option(
            metavar="WHAT",
            help="If one has the custom id: [bold]return[/bold] its id; an [bold]error[/bold]; [bold]restart[/bold] "
            "its failed tasks; or [bold]new_after_end[/bold], another one once it has ended.",
        ),
    ] = "return",
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="What it is searched by, as label.NAME:VALUE; may be repeated."),
    ] = None,
    wait: Annotated[
        float | None,
        typer.Option("--wait", parser=duration, metavar=DURATION, help="Wait for the result, and print it; alone: 1h."),
    ] = None,
    json: JsonOption = False,
) -> None:
    from recovery import tracing
    from recovery.cli.awaiting import await_result, goes_on
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json
    from recovery.engine import load_app
    from recovery.records.search_names import parse_labels
    from recovery.records.values import plain_failure
    from recovery.settings import load
    from recovery.wording import printable_json

    recovery_app, values = load_app(load(app=app).app), [value(text) for text in arguments or ()]
    labels = parse_labels(label or [])
    connect(recovery_app.settings)
    tracing.install()
    process_id = recovery_app.start(
        process_type,
        *values,
        custom_id=custom_id,
        any_arguments=any_arguments,
        if_exists=cast(Any, if_exists),
        labels=labels,
    )
    try:
        if not json:
            console().print(process_id)
        if wait is None:
            if json:
                print_json("start", {"process": process_id})
            return
        result = await_result(recovery_app, process_id, wait)
    except KeyboardInterrupt:
        raise goes_on(process_id) from None
    text = json_module.dumps(result, ensure_ascii=False, default=plain_failure)
    if json:
        print_json("start", {"process": process_id, "result": json_module.loads(text)})
    else:
        print(printable_json(text))


def value(text: str) -> Any:
    """An argument from the command line."""
    from recovery.errors import InputError

    try:
        return json_module.loads(text, parse_constant=_refuse)
    except (json_module.JSONDecodeError, _NotJson):
        return text
    except RecursionError:
        raise InputError(f"{text[:40]}…: is nested too deeply; an argument has at most 100 levels") from None
    except ValueError:  # Python reads no number of thousands of digits
        raise InputError(f"{text[:40]}…: is too long a number; pass it as a text, in quotes: '\"…\"'") from None


class _NotJson(Exception):
    """What Python reads as JSON and JSON has not: NaN and Infinity."""


def _refuse(name: str) -> Any:
    raise _NotJson(name)


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command(cls=Command, help=paragraphs(START_HELP))(start)
