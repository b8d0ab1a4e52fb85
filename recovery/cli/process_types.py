"""`recovery process-type`: settings of process types, changed while workers run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from recovery.cli.completion import complete_type
from recovery.cli.overrides import Found, Help, group

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.engine import Resources
    from recovery.engine.operations.overrides import ProcessTypeOverrides
    from recovery.records import ProcessTypePreferences, Stored

HELP = Help(
    name="process-type",
    complete=complete_type,
    group="""Settings of process types, changed while workers run.

Example: [bold]recovery process-type set order process_timeout=1h[/bold]
""",
    list="""List process types, and what is set.

Example: [bold]recovery process-type list[/bold]
""",
    show="""Show a process type's settings, and where each comes from.

Example: [bold]recovery process-type show order[/bold]
""",
    set="""Set settings of a process type over what its code says.

Times are seconds, or have a unit: 90, 90s, 2m, 1h, 1d. idle_timeout holds for processes that start from now on.

Example: [bold]recovery process-type set order process_timeout=1h break_after_process_timeout=true[/bold]
""",
    unset="""Let a process type's code decide settings again.

Example: [bold]recovery process-type unset order process_timeout[/bold]
""",
)


def add_to(commands: typer.Typer) -> None:
    """Register the commands of this module."""
    commands.add_typer(group(HELP, _overrides, look, _one, _print, "process_types"), name="process-type")


def look(resources: Resources) -> dict[str, Found]:
    """All process types, as JSON has them."""
    return {name: _one(stored) for name, stored in sorted(resources.store.process_types.stored().items())}


def _overrides() -> type[ProcessTypeOverrides]:
    from recovery.engine.operations.overrides import ProcessTypeOverrides

    return ProcessTypeOverrides


def _one(stored: Stored[ProcessTypePreferences]) -> Found:
    from recovery.cli.settings import describe_settings

    return {"settings": describe_settings(stored)}


def _print(out: Console, found: dict[str, Found]) -> None:
    from recovery.cli.settings import overridden, shown
    from recovery.cli.tables import print_rows

    if not found:
        out.print("none: no worker has ever run here")
        return
    rows = []
    for name, one in found.items():
        idle, whole = (shown(key, one["settings"][key]["value"]) for key in ("idle_timeout", "process_timeout"))
        rows.append((name, idle, whole, overridden(one["settings"])))
    print_rows(out, ("process type", "idle_timeout", "process_timeout", "set"), rows)
