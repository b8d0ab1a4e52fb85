"""`recovery doctor`: is the cluster well?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from recovery.cli.command_options import BAD, ERROR, Command, JsonOption, paragraphs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recovery.cli.output import Labelled
    from recovery.health import Check

HELP = """Check the cluster: servers, clocks, packages, collections, workers, queues, beat, scanners and deadlines.

Each line is OK, WARNING, UNKNOWN or PROBLEM, with what to do. Nothing of yours is written. Ends with 0 if there is no
problem and no broken process, 1 if there is one, 2 if a server does not answer: then what it would tell is not known,
and these checks are one line. With --json each has a [italic]cause[/italic], a code that does not change:
docs/causes.md explains them.

Example: [bold]recovery doctor --json[/bold]
"""

LABEL = 21
STYLES = {"OK": "green", "WARNING": "yellow", "UNKNOWN": "yellow", "PROBLEM": "bold red"}


def doctor(json: JsonOption = False) -> None:
    from recovery.cli.output import console, print_json
    from recovery.engine import Resources
    from recovery.health import examine
    from recovery.health.doctor import SERVERS
    from recovery.health.model import Cause, is_bad, worst
    from recovery.settings import load

    out = console()
    checks: list[Check] = []
    for check in examine(Resources.connect(load())):
        checks.append(check)
        if not json and check.cause is not Cause.NOT_ASKED:
            out.print(_lines(check))
    if not json and (missing := [check for check in checks if check.cause is Cause.NOT_ASKED]):
        out.print(_lines(_in_one(missing)))
    if json:
        print_json("doctor", {"level": worst(checks), "checks": [_as_dict(check) for check in checks]})
    if any(check.name in SERVERS and not check.asked for check in checks):
        raise typer.Exit(ERROR)
    raise typer.Exit(BAD if is_bad(checks) else 0)


def _in_one(checks: Sequence[Check]) -> Check:
    """Return one check for all that were not asked, because other lines tell the reason."""
    from dataclasses import replace

    names, why = ", ".join(check.name for check in checks), "; ".join(dict.fromkeys(check.found for check in checks))
    return replace(checks[0], name="not asked", found=f"{names} ({why})", advice="see the problems above")


def _lines(check: Check) -> Labelled:
    from recovery.cli.output import Labelled, line

    style = STYLES[check.level]
    rows = [(line((f"{check.level:<8}", style), (f"{check.name:<13}", "bold")), line(check.found))]
    if check.advice:
        rows.append((line(" " * LABEL), line((f"→ {check.advice}", style))))
    return Labelled(rows, LABEL)


def _as_dict(check: Check) -> dict[str, object]:
    return {
        "name": check.name,
        "level": check.level,
        "cause": check.cause,
        "found": check.found,
        "advice": check.advice,
        "asked": check.asked,
    }


def add_to(app: typer.Typer) -> None:
    """Register the commands of this module."""
    app.command(cls=Command, help=paragraphs(HELP))(doctor)
