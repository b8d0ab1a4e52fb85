"""`recovery doctor`: is the cluster well?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from recovery.cli.options import Command
from recovery.cli.output import JsonOption, paragraphs

if TYPE_CHECKING:
    from recovery.cli.tables import Labelled
    from recovery.health import Check

HELP = """Check the cluster: servers, clocks, packages, collections, workers, queues, beat, scanners and deadlines.

Each line is OK, WARNING or PROBLEM, with what to do. Nothing of yours is written. Ends with 0 if there is no
problem, 1 if there is one, 2 if a server does not answer: then what it would tell is not known.

Example: [bold]recovery doctor --json[/bold]
"""

PROBLEM, AWAY = 1, 2
LABEL = 21
STYLES = {"OK": "green", "WARNING": "yellow", "PROBLEM": "bold red"}


def doctor(json: JsonOption = False) -> None:
    from recovery.cli.envelope import print_json
    from recovery.cli.output import console
    from recovery.engine import Resources
    from recovery.health import Level, examine
    from recovery.health.doctor import SERVERS
    from recovery.health.model import worst
    from recovery.settings import load

    out = console()
    checks: list[Check] = []
    for check in examine(Resources.connect(load())):
        checks.append(check)
        if not json:
            out.print(_lines(check))
    if json:
        print_json("doctor", {"level": worst(checks), "checks": [_as_dict(check) for check in checks]})
    if any(check.name in SERVERS and not check.asked for check in checks):
        raise typer.Exit(AWAY)
    raise typer.Exit(PROBLEM if worst(checks) is Level.PROBLEM else 0)


def _lines(check: Check) -> Labelled:
    from recovery.cli.output import line
    from recovery.cli.tables import Labelled

    style = STYLES[check.level]
    rows = [(line((f"{check.level:<8}", style), (f"{check.name:<13}", "bold")), line(check.found))]
    if check.advice:
        rows.append((line(" " * LABEL), line((f"→ {check.advice}", style))))
    return Labelled(rows, LABEL)


def _as_dict(check: Check) -> dict[str, object]:
    return {
        "name": check.name,
        "level": check.level,
        "found": check.found,
        "advice": check.advice,
        "asked": check.asked,
    }


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command(cls=Command, help=paragraphs(HELP))(doctor)
