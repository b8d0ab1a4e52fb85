"""`recovery process-type`: settings of process types, changed while workers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from recovery.cli.command_options import JsonOption, ReasonOption
from recovery.cli.connection import connect
from recovery.cli.output import print_answer, print_rows
from recovery.cli.override_commands import Found, OverridesGroup, disabled_text, group
from recovery.cli.shell_completion import complete_type

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.engine import Resources
    from recovery.engine.operators.overrides import ProcessTypeOverrides
    from recovery.records import ProcessTypePreferences, Stored, TypeDisabled

DISABLE_HELP = """Start no process of a type any more, by whomever; what runs goes on. The reason is told to who tries.

Example: [bold]recovery process-type disable order --reason "the ledger is closed"[/bold]
"""
ENABLE_HELP = """Start processes of a type again. Schedules go on with their next slot.

Example: [bold]recovery process-type enable order[/bold]
"""

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, autocompletion=complete_type)]
Reason = Annotated[str, typer.Option("--reason", help="Told to whoever starts one; needed.", show_default=False)]


def disable(name: Name, reason: Reason = "", json: JsonOption = False) -> None:
    overrides = _overrides()(connect())
    changed = overrides.disable(name, reason)
    disabled = _as_dict(overrides.get(name).disabled)
    was = "is disabled" if changed else f"was disabled already, {disabled_text(disabled) if disabled else ''}"
    text = f"{name} {was}: none is started. `recovery process-type enable {name}` ends that"
    print_answer("process-type disable", {"name": name, "changed": changed, "disabled": disabled}, text, json=json)


def enable(name: Name, reason: ReasonOption = "", json: JsonOption = False) -> None:
    changed = _overrides()(connect()).enable(name, reason)
    text = f"{name} is enabled" if changed else f"{name} was not disabled; nothing has changed"
    print_answer("process-type enable", {"name": name, "changed": changed, "disabled": None}, text, json=json)


def _as_dict(disabled: TypeDisabled | None) -> Found | None:
    return None if disabled is None else {"at": disabled.at, "by": disabled.by, "reason": disabled.reason}


def look(resources: Resources) -> dict[str, Found]:
    """Return all process types as JSON has them."""
    return {name: _one(stored) for name, stored in sorted(resources.store.process_types.stored().items())}


def _overrides() -> type[ProcessTypeOverrides]:
    from recovery.engine.operators.overrides import ProcessTypeOverrides

    return ProcessTypeOverrides


def _one(stored: Stored[ProcessTypePreferences]) -> Found:
    from recovery.cli.setting_values import describe_settings

    return {"disabled": _as_dict(stored.disabled), "settings": describe_settings(stored)}


def _print(out: Console, found: dict[str, Found]) -> None:
    from recovery.cli.setting_values import overridden, shown

    if not found:
        out.print("none: no worker has ever run here")
        return
    rows = []
    for name, one in found.items():
        idle, whole = (shown(key, one["settings"][key]["value"]) for key in ("idle_timeout", "process_timeout"))
        state = Text("disabled" if one["disabled"] else "", style="red")
        rows.append((name, idle, whole, state, overridden(one["settings"])))
    print_rows(out, ("process type", "idle_timeout", "process_timeout", "state", "set"), rows)


commands = group(
    OverridesGroup(
        name="process-type",
        complete=complete_type,
        group_help="""Settings of process types, and which are disabled, changed while workers run.

Example: [bold]recovery process-type set order process_timeout=1h[/bold]
""",
        list_help="""List process types, and what is set.

Example: [bold]recovery process-type list[/bold]
""",
        show_help="""Show a process type's settings, and where each comes from.

Example: [bold]recovery process-type show order[/bold]
""",
        set_help="""Set settings of a process type over what its code says.

Times are seconds, or have a unit: 90, 90s, 2m, 1h, 1d. What it does not reach by itself is told.

Example: [bold]recovery process-type set order process_timeout=1h break_after_process_timeout=true[/bold]
""",
        unset_help="""Let a process type's code decide settings again.

Example: [bold]recovery process-type unset order process_timeout[/bold]
""",
        overrides=_overrides,
        look=look,
        one=_one,
        print_all=_print,
        plural="process_types",
    )
)
commands.add(DISABLE_HELP)(disable)
commands.add(ENABLE_HELP)(enable)
