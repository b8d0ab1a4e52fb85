"""`recovery sweep`."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from recovery.cli.command_options import Commands, JsonOption, ReasonOption
from recovery.cli.connection import connect
from recovery.cli.output import Labelled, console, print_json
from recovery.cli.shell_completion import complete_type
from recovery.errors import InputError, UnknownProcessType
from recovery.settings import load

if TYPE_CHECKING:
    from recovery.engine import Resources
    from recovery.records import Operation

HELP = """Check every process with Spark, whether its deadline is past or not; repair what is wrong if told to.

It is an operation, done by a worker that serves the queue spark; with --here in a Spark of this machine, which needs
pip install 'recovery-workers\\[spark]' and Java. Without --repair nothing is changed. Ends with 0 whatever is found, 2
if there is no process of the type.

Example: [bold]recovery sweep --type order --repair[/bold]
Example: [bold]recovery sweep --type order --type payment --priority payment=10[/bold]
"""
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set by spark-submit: then its Spark is the one."""

commands = Commands()


@commands.add(HELP)
def sweep(
    process_type: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="Only processes of this type; may be given several times.", autocompletion=complete_type
        ),
    ] = None,
    priority: Annotated[
        list[str] | None, typer.Option(metavar="TYPE=N", help="Types to be looked at sooner; others have 0.")
    ] = None,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what is found.")] = False,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Look for damage in what is at rest, too: takes several times as long.")
    ] = False,
    parquet: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Write what is found there, as Parquet.", show_default=False)
    ] = None,
    here: Annotated[bool, typer.Option("--here", help="In a Spark of this machine, by RECOVERY_SPARK_MASTER.")] = False,
    reason: ReasonOption = "",
    json: JsonOption = False,
) -> None:
    from recovery.operations import priorities_of
    from recovery.sweep import WHY, ask, java, report_of

    settings, here = load(), here or SUBMITTED in os.environ
    resources = connect(settings)
    if here:
        java.check(settings.spark_master)
    for name in process_type or ():
        check_type(resources, name)
    operation = ask(
        resources,
        why=reason or WHY,
        here=here,
        repair=repair,
        process_type=process_type,
        thorough=thorough,
        parquet=parquet,
        priorities=priorities_of(priority or []),
    )
    seconds = _followed(resources, operation, here=here, quiet=json)
    _print(report_of(resources, operation.id, seconds).summary(), json=json)


def _followed(resources: Resources, operation: Operation, *, here: bool, quiet: bool) -> float | None:
    """Wait until it is over, with a bar; driven by this process or by somebody else."""
    from recovery.cli.operation_texts import follow
    from recovery.sweep import drive_here

    seconds: list[float] = []
    errors: list[BaseException] = []

    def drive() -> None:
        try:
            seconds.append(drive_here(resources, operation))
        except BaseException as error:  # raised again by who waits
            errors.append(error)

    driver = threading.Thread(target=drive, daemon=True)
    if here:
        driver.start()
    over = follow(resources, operation.id, quiet=quiet, until=lambda: here and not driver.is_alive())
    if here:
        driver.join()
        if errors:
            raise errors[0]
    if over.refusal:
        raise InputError(over.refusal)
    return seconds[0] if seconds else None


def _print(found: dict[str, Any], *, json: bool) -> None:
    if json:
        print_json("sweep", found)
        return
    rows = [(str(name).replace("_", " "), Text(text(value))) for name, value in found.items()]
    console().print(Labelled(rows, max(len(label) for label, _ in rows) + 2))


def check_type(resources: Resources, process_type: str) -> None:
    """Raise UnknownProcessType for a type of which there is no process, unless a worker has reported it."""
    from recovery.engine.lookup import unknown_type

    if (unknown := unknown_type(resources, process_type)) is not None:
        raise UnknownProcessType(unknown)


def text(value: object) -> str:
    """Return a figure of the summary as people see it."""
    if isinstance(value, dict):
        return "\n".join(f"{key}: {item}" for key, item in value.items()) or "none"
    if isinstance(value, list | tuple):
        return "\n".join(f"{one['rule']}  {one['record']}  {one['evidence']}" for one in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None:
        return "all"
    return f"{value:.1f}" if isinstance(value, float) else str(value)
