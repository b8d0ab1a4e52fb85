"""`recovery start`: one process, and waiting for its result, with a word on what it waits for that no worker takes."""

from __future__ import annotations

import json as json_module
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import typer

from recovery.cli.command_options import DURATION, AppOption, Commands, JsonOption, duration
from recovery.cli.connection import connect
from recovery.cli.interrupts import process_goes_on
from recovery.cli.output import console, messages, print_json
from recovery.cli.shell_completion import complete_type
from recovery.errors import InputError, ResultTimeout
from recovery.settings import load
from recovery.wording import printable_json, show_duration

if TYPE_CHECKING:
    from recovery import Recovery
    from recovery.engine import Resources

Found = TypeVar("Found")

log = logging.getLogger(__name__)

LOOK_EVERY = 2.0
"""Seconds between two looks at whether somebody serves what is waited for. The first comes as late: a process that is
served has mostly ended by then. A look costs as many seeks as there are actors."""

START_HELP = """Start a process of your application and print its id.

Each ARG is JSON, or plain text if it is not JSON: 3, true, '{"sku": 7}' and blue are a number, a truth value, an
object and a text ('"3"' is the text 3). With --wait its result is printed as JSON once it has ended; should it wait for
an actor that no worker serves, or that is blocked, or should no beat nudge, that is told within 5 s. Ctrl-C
ends the waiting, not the process.

Ends with 0 if it was started, and with --wait finished; 1 if it broke or was aborted, 2 if it could not be started, 3
if it still runs after the time given.

Example: [bold]recovery start order 4711 '{"sku": "A-1", "count": 2}' --app shop.orders:app --wait 30s[/bold]
"""

commands = Commands()


@commands.add(START_HELP)
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
    from recovery.engine import load_app
    from recovery.records.search_names import parse_labels
    from recovery.records.values import plain_failure

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
        raise process_goes_on(process_id) from None
    text = json_module.dumps(result, ensure_ascii=False, default=plain_failure)
    if json:
        print_json("start", {"process": process_id, "result": json_module.loads(text)})
    else:
        print(printable_json(text))


def await_result(app: Recovery, process_id: str, seconds: float) -> Any:
    """Return the result of a process, waiting for at most this many seconds.

    Meanwhile report once which tasks no worker will take, and once if no beat nudges, because overdue work then waits
    longer.
    """
    from recovery.health.beat_and_scanners import missing_beat

    deadline = time.monotonic() + seconds
    told = told_of_beat = False
    while True:
        left = deadline - time.monotonic()
        last = left <= LOOK_EVERY
        try:
            return app.result(process_id, timeout=max(0.0, left if last else LOOK_EVERY))
        except ResultTimeout:
            if not told and (reasons := _ask(_reasons, app.resources, process_id)):
                told = True
                for reason in reasons:
                    messages().print(f"{process_id} waits: {reason}", style="yellow")
            if not told_of_beat and (missing := _ask(missing_beat, app.resources)):
                told_of_beat = True
                messages().print(missing, style="yellow")
            if last:
                raise ResultTimeout(
                    f"process {process_id} has not ended within {show_duration(seconds)}; it goes on"
                ) from None


def _ask(question: Callable[..., Found], *about: Any) -> Found | None:
    """Ask a question of the cluster in a short time; None if that can't be answered now."""
    from recovery.store.views.overview import time_limit

    try:
        with time_limit(LOOK_EVERY):
            return question(*about)
    except Exception:  # whatever it is, the result is waited for; a server that is away ends that by itself
        log.debug("%s could not be asked", question.__name__, exc_info=True)
        return None


def _reasons(resources: Resources, process_id: str) -> list[str]:
    """Return why no worker takes what the process waits for."""
    from recovery.health import untaken_tasks, versions

    store = resources.store
    lonely = untaken_tasks.reasons(store.waiting.by_actor(count_served=False))
    waited_for = store.pending.actors_of(process_id, lonely) if lonely else set()
    # By itself: until `recovery init` has made its index, the other reasons are reported all the same.
    refused_tasks = _ask(store.refusals.of_process, process_id) or []
    pinned = versions.pinned_in_vain(resources, refused_tasks)
    refused = {f"{one.actor} {pinned.get(one.id) or untaken_tasks.why_refused(one)}" for one in refused_tasks}
    return [*(lonely[name] for name in sorted(waited_for)), *sorted(refused)]


def value(text: str) -> Any:
    """Return the value of an argument of the command line."""
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
