"""`recovery disk`: what processes take on the disk, by type."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.command_options import Commands, JsonOption
from recovery.cli.connection import connect
from recovery.cli.output import console, print_json, print_rows
from recovery.wording import count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recovery.store.views.disk_use import DiskUse, Use

HELP = """Show how many processes and records there are of each process type, and what they take on the disk.

Where processes have up to 100,000 records they are counted. Of more it is an estimate from processes that are drawn at
random: of millions it takes a second or two. What is old is removed by
[italic]recovery operation start collect[/italic], or by itself: [italic]recovery schedule operation[/italic].

Example: [bold]recovery disk --json[/bold]
"""
SAMPLE = 1000
"""Of which a share of a half is known to some 3 points. They are read in a second."""
MAX_SAMPLE = 100_000
CERTAINTY = 1.96
"""Standard deviations that are not passed 19 times of 20."""
_UNITS = ("B", "kB", "MB", "GB", "TB")

commands = Commands()


@commands.add(HELP)
def disk(
    sample: Annotated[
        int, typer.Option(min=100, max=MAX_SAMPLE, help="How many processes an estimate is made from, about.")
    ] = SAMPLE,
    json: JsonOption = False,
) -> None:
    found = connect(needs_redis=False).store.disk.use(sample)
    if json:
        print_json("disk", as_dict(found))
        return

    headers = ("type", "processes", "records", "documents", "on disk", "share")
    print_rows(console(), headers, _rows(found), right=headers[1:])
    for text in _remarks(found):
        console().print(text, style="dim")


def as_dict(found: DiskUse) -> dict[str, Any]:
    """Return what is used, as JSON has it, in bytes. The type that takes most is first."""
    return {
        "types": [{"type": kind, **_use(use)} for kind, use in _sorted(found)],
        "others": _use(found.others),
        "free": found.free,
        "estimated": found.estimated,
        "drawn": found.drawn,
        "points": round(_points(found), 2) if found.estimated else 0,
    }


def _use(use: Use) -> dict[str, int | None]:
    return {
        "processes": round(use.processes),
        "records": round(use.records),
        "bytes": round(use.bytes),
        "disk": None if use.disk is None else round(use.disk),
    }


def _sorted(found: DiskUse) -> list[tuple[str | None, Use]]:
    return sorted(found.types.items(), key=lambda pair: (-pair[1].bytes, pair[0] or ""))


def _points(found: DiskUse) -> float:
    """Return by how many points a share of a half may be off."""
    return CERTAINTY * 50 / sqrt(max(1, found.drawn))


def _rows(found: DiskUse) -> Iterator[Sequence[str]]:
    uses = [*_sorted(found), ("", found.others)]
    total = sum(_weight(use) for _, use in uses) or 1
    for kind, use in uses:
        name = "(of no type that is known)" if kind is None else kind or "(of no process)"
        processes = f"{round(use.processes):,}" if kind != "" else ""
        stored = "?" if use.disk is None else show_bytes(use.disk)
        yield name, processes, f"{round(use.records):,}", show_bytes(use.bytes), stored, f"{_weight(use) / total:.0%}"


def _weight(use: Use) -> float:
    return use.bytes if use.disk is None else use.disk


def show_bytes(number: float) -> str:
    """Return a number of bytes as a text of three digits and a unit."""
    place = 0
    while number >= 999.5 and place < len(_UNITS) - 1:
        number, place = number / 1000, place + 1
    return f"{number:.0f} {_UNITS[place]}" if number >= 100 or place == 0 else f"{number:.2g} {_UNITS[place]}"


def _remarks(found: DiskUse) -> Iterator[str]:
    if found.estimated:
        yield (
            f"estimated from {count(found.drawn, 'process')}, drawn at random, with all of their records: a share of a "
            f"half may be off by {_points(found):.1f} points (19 times of 20 by less), and by more where processes of "
            "a type differ much in size"
        )
    if found.free is None:
        yield "what is on disk is not known: this user of MongoDB lacks the right collStats"
    elif found.free:
        yield f"{show_bytes(found.free)} more of the files are free for records to come; what is removed leaves them"
