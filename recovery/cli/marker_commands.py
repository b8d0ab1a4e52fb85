"""`recovery marker`: what is not to be started again until a person has looked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from recovery.cli.command_options import Commands, JsonOption, OfTypeOption
from recovery.cli.connection import connect
from recovery.cli.output import Labelled, console, moment, print_json, print_rows
from recovery.cli.shell_completion import complete_marker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import Console

    from recovery.records import Clearing, Marker

GROUP = """List, show and clear markers: process types, and keys of them, of which none is started.

A process of a type with [italic]markers[/italic] that breaks for good leaves one.

Example: [bold]recovery marker list[/bold]
"""
LIST = """List markers, or those that were cleared in the last 90 days.

Example: [bold]recovery marker list --type replicate --json[/bold]
"""
SHOW = """Show a marker: the error with its stack, the process, and who cleared earlier ones, when and why.

Example: [bold]recovery marker show replicate/sales[/bold]
"""
CLEAR = """Clear a marker: processes of its type and key are started again. The reason is kept.

The process that broke stays broken: `recovery broken restart` runs its failed tasks again.

Example: [bold]recovery marker clear replicate/sales --reason "the source is back"[/bold]
"""

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="TYPE or TYPE/KEY, as listed.", show_default=False, autocompletion=complete_marker
    ),
]
Reason = Annotated[str, typer.Option("--reason", help="Kept with the marker; needed.", show_default=False)]

commands = Commands("marker", GROUP)


@commands.add(LIST, "list")
def list_(
    process_type: OfTypeOption = None,
    cleared: Annotated[bool, typer.Option("--cleared", help="Those that were cleared.")] = False,
    json: JsonOption = False,
) -> None:
    from recovery.records import given

    wanted = given.text(process_type, "--type") if process_type is not None else None
    markers = connect(needs_redis=False).store.markers
    found = markers.cleared(wanted) if cleared else markers.all(wanted)
    if json:
        print_json("marker list", {"cleared": cleared, "markers": [as_dict(one) for one in found]})
    elif cleared:
        _print_cleared(console(), found)
    else:
        _print(console(), found)


@commands.add(SHOW)
def show(name: Name, json: JsonOption = False) -> None:
    from recovery.engine.operators.markers import find_marker

    found = find_marker(connect(needs_redis=False), name)
    if json:
        print_json("marker show", {**as_dict(found), "stack": found.stack})
    else:
        _show(console(), found)


@commands.add(CLEAR)
def clear(name: Name, reason: Reason = "", json: JsonOption = False) -> None:
    from recovery.engine.operators.markers import clear_marker, find_marker

    resources = connect()
    was = clear_marker(resources, name, reason)
    if json:
        print_json("marker clear", as_dict(find_marker(resources, name)))
    else:
        restart = f"`recovery broken restart {was.process}` runs its failed tasks again"
        console().print(f"{was.id} is cleared, and may be started; process {was.process} stays broken, {restart}")


def as_dict(marker: Marker) -> dict[str, Any]:
    """Return a marker as JSON has it, without its stack."""
    from recovery.engine.end.breaking import class_of_error, code_of

    return {
        "name": marker.id,
        "type": marker.type,
        "key": marker.key,
        "is_there": marker.cleared_at is None,
        "code": code_of(marker.code),
        "exhausted": marker.exhausted,
        "class": class_of_error(marker.code),
        "reason": marker.reason,
        "kind": marker.kind,
        "message": marker.message,
        "fingerprint": marker.fingerprint,
        "process": marker.process,
        "actor": marker.actor,
        "task": marker.task,
        "written_at": marker.written_at,
        "clearings": [_clearing(one) for one in marker.clearings],
    }


def _clearing(one: Clearing) -> dict[str, Any]:
    names = ("at", "by", "reason", "process", "code", "kind", "message", "written_at")
    return {name: getattr(one, name) for name in names}


def _print(out: Console, markers: Sequence[Marker]) -> None:
    rows = [(one.id, str(as_dict(one)["code"]), _short(one), one.process, moment(one.written_at)) for one in markers]
    print_rows(out, ("marker", "code", "error", "process", "since (UTC)"), rows, none="none")


def _print_cleared(out: Console, markers: Sequence[Marker]) -> None:
    rows = [(one.id, moment(last.at), last.by, last.reason) for one in markers for last in one.clearings[-1:]]
    print_rows(out, ("marker", "cleared (UTC)", "by", "reason"), rows, none="none")


def _show(out: Console, marker: Marker) -> None:
    there = "" if marker.cleared_at is None else "  cleared"
    out.print(Text.assemble((marker.id, "bold"), (there, "green")))
    rows = [(Text(f"  {label}", style="bold"), text) for label, text in _rows(marker)]
    out.print(Labelled(rows, 14))
    if marker.stack:
        out.print(Text(marker.stack.rstrip()))


def _rows(marker: Marker) -> Iterator[tuple[str, str]]:
    found = as_dict(marker)
    reason = f", reason {marker.reason}" if marker.reason else ""
    yield "error", f"{marker.kind}: {marker.message}"
    exhausted = f", retries of {marker.exhausted} exhausted" if marker.exhausted else ""
    yield "code", f"{found['code']}, {found['class']}{reason}{exhausted}"
    yield "process", marker.process
    if marker.actor and marker.task:
        yield "task", f"{marker.task}, of {marker.actor}"
    yield "written", f"{moment(marker.written_at)} UTC"
    for place, one in enumerate(reversed(marker.clearings)):
        of = "" if place == 0 and marker.cleared_at is not None else f", for process {one.process}"
        yield "cleared", f"{moment(one.at)} UTC by {one.by}: {one.reason}{of}"


def _short(marker: Marker) -> str:
    text = " ".join(f"{marker.kind}: {marker.message}".split())
    return text if len(text) <= 80 else f"{text[:80]}…"
