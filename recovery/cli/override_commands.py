"""What `recovery actor` and `recovery process-type` have in common: showing, setting and unsetting of settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer
from rich.text import Text

from recovery.cli.command_options import Commands, JsonOption, ReasonOption
from recovery.cli.connection import connect
from recovery.cli.output import console, print_json, print_rows, utc

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.engine import Resources
    from recovery.engine.operators.overrides import ActorOverrides, ProcessTypeOverrides
    from recovery.records import Stored

    OverridesClass = type[ActorOverrides] | type[ProcessTypeOverrides]

ASSIGNMENTS: list[str] = typer.Argument(metavar="SETTING=VALUE", show_default=False)
NAMES: list[str] = typer.Argument(metavar="SETTING", show_default=False)
Found = dict[str, Any]


@dataclass(frozen=True)
class OverridesGroup:
    """The commands of one kind of settings: their texts, and what is different between the kinds."""

    name: str
    complete: Callable[[str], list[str]]
    """What a shell offers for a name."""
    group_help: str
    list_help: str
    show_help: str
    set_help: str
    unset_help: str
    overrides: Callable[[], OverridesClass]
    """Imports the class that changes the settings, when a command is run."""
    look: Callable[[Resources], dict[str, Found]]
    """All of them, as JSON has it."""
    one: Callable[[Stored[Any]], Found]
    """The same of what is kept under one name."""
    print_all: Callable[[Console, dict[str, Found]], None]
    plural: str
    """What JSON calls all of them."""
    needs_redis: bool = False
    """Whether `look` asks Redis."""


def group(of: OverridesGroup) -> Commands:
    """Return the commands `list`, `show`, `set` and `unset` over one kind of settings."""
    made = Commands(of.name, of.group_help)
    # Not in the annotation, which is read where this name is not known.
    which = typer.Argument(metavar="NAME", show_default=False, autocompletion=of.complete)

    @made.add(of.list_help, "list")
    def list_(json: JsonOption = False) -> None:
        found = of.look(connect(needs_redis=of.needs_redis))
        if json:
            print_json(f"{of.name} list", {of.plural: found})
        else:
            of.print_all(console(), found)

    @made.add(of.show_help)
    def show(name: str = which, json: JsonOption = False) -> None:
        found = {"name": name, **of.one(of.overrides()(connect(needs_redis=False)).get(name))}
        if json:
            print_json(f"{of.name} show", found)
        else:
            _print(console(), found)

    @made.add(of.set_help, "set")
    def set_(
        name: str = which, settings: list[str] = ASSIGNMENTS, reason: ReasonOption = "", json: JsonOption = False
    ) -> None:
        from recovery.cli.setting_values import parse

        changes = parse(of.overrides().kind, settings, name)
        overrides = of.overrides()(connect())
        overrides.set(name, changes, reason)
        _print_changed(of, "set", name, overrides.get(name), list(changes), json)

    @made.add(of.unset_help)
    def unset(
        name: str = which, settings: list[str] = NAMES, reason: ReasonOption = "", json: JsonOption = False
    ) -> None:
        from recovery.cli.setting_values import check_names

        check_names(of.overrides().kind, settings, f"unset {name} {' '.join(settings)}")
        overrides = of.overrides()(connect())
        overrides.unset(name, settings, reason)
        _print_changed(of, "unset", name, overrides.get(name), list(dict.fromkeys(settings)), json)

    return made


def _print_changed(of: OverridesGroup, how: str, name: str, stored: Stored[Any], names: list[str], json: bool) -> None:
    """Print what holds now that these settings were changed."""
    from recovery.cli.setting_values import effective_line, not_reached

    told = not_reached(stored.effective, names)
    if json:
        print_json(f"{of.name} {how}", {"name": name, **of.one(stored), "not_reached": told})
        return
    console().print(f"{name}: {effective_line(stored, names)}")
    for sentence in told:
        console().print(sentence, style="dim", highlight=False)


def _print(out: Console, found: Found) -> None:
    from recovery.cli.setting_values import rows

    state = (" blocked", "red") if found.get("blocked") else ""
    if disabled := found.get("disabled"):
        state = (f" disabled {disabled_text(disabled)}", "red")
    out.print(Text.assemble((found["name"], "bold"), state))
    print_rows(out, ("setting", "value", "from"), list(rows(found["settings"])))


def disabled_text(disabled: Found) -> str:
    """Return since when a process type is disabled, by whom and why."""
    at = f"since {utc(disabled['at'])} " if disabled["at"] else ""
    return f"{at}by {disabled['by']}: {disabled['reason']}"
