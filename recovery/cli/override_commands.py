"""What `recovery actor` and `recovery process-type` have in common: showing, setting and unsetting of settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from recovery.cli.command_options import Command, CommandGroup, JsonOption, ReasonOption, paragraphs

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
class GroupTexts:
    """The texts of a group's commands."""

    name: str
    complete: Callable[[str], list[str]]
    """What a shell offers for a name."""
    group: str
    list: str
    show: str
    set: str
    unset: str


@dataclass(frozen=True)
class OverridesGroup:
    """One kind of settings. `overrides` imports the class that changes them, when a command is run."""

    texts: GroupTexts
    overrides: Callable[[], OverridesClass]
    look: Callable[[Resources], dict[str, Found]]
    """All of them, as JSON has it."""
    one: Callable[[Stored[Any]], Found]
    """The same of what is kept under one name."""
    print_all: Callable[[Console, dict[str, Found]], None]
    plural: str
    """What JSON calls all of them."""
    needs_redis: bool = False
    """Whether `look` asks Redis."""


def group(of: OverridesGroup) -> typer.Typer:
    """Return the commands `list`, `show`, `set` and `unset` over one kind of settings."""
    texts = of.texts
    made = typer.Typer(cls=CommandGroup, help=paragraphs(texts.group), no_args_is_help=True)
    # Not in the annotation, which is read where this name is not known.
    which = typer.Argument(metavar="NAME", show_default=False, autocompletion=texts.complete)

    @made.command("list", cls=Command, help=paragraphs(texts.list))
    def list_(json: JsonOption = False) -> None:
        _list(of, json)

    @made.command(cls=Command, help=paragraphs(texts.show))
    def show(name: str = which, json: JsonOption = False) -> None:
        _show(of, name, json)

    @made.command("set", cls=Command, help=paragraphs(texts.set))
    def set_(
        name: str = which, settings: list[str] = ASSIGNMENTS, reason: ReasonOption = "", json: JsonOption = False
    ) -> None:
        _set(of, name, settings, reason, json)

    @made.command(cls=Command, help=paragraphs(texts.unset))
    def unset(
        name: str = which, settings: list[str] = NAMES, reason: ReasonOption = "", json: JsonOption = False
    ) -> None:
        _unset(of, name, settings, reason, json)

    return made


def _list(of: OverridesGroup, json: bool) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json

    found = of.look(connect(needs_redis=of.needs_redis))
    if json:
        print_json(f"{of.texts.name} list", {of.plural: found})
    else:
        of.print_all(console(), found)


def _show(of: OverridesGroup, name: str, json: bool) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.output import console, print_json

    found = {"name": name, **of.one(of.overrides()(connect(needs_redis=False)).get(name))}
    if json:
        print_json(f"{of.texts.name} show", found)
    else:
        _print(console(), found)


def _set(of: OverridesGroup, name: str, settings: list[str], reason: str, json: bool) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.setting_values import parse

    changes = parse(of.overrides().kind, settings, name)
    overrides = of.overrides()(connect())
    overrides.set(name, changes, reason)
    _print_changed(of, "set", name, overrides.get(name), list(changes), json)


def _unset(of: OverridesGroup, name: str, settings: list[str], reason: str, json: bool) -> None:
    from recovery.cli.connection import connect
    from recovery.cli.setting_values import check_names

    check_names(of.overrides().kind, settings, f"unset {name} {' '.join(settings)}")
    overrides = of.overrides()(connect())
    overrides.unset(name, settings, reason)
    _print_changed(of, "unset", name, overrides.get(name), list(dict.fromkeys(settings)), json)


def _print_changed(of: OverridesGroup, how: str, name: str, stored: Stored[Any], names: list[str], json: bool) -> None:
    """Print what holds now that these settings were changed."""
    from recovery.cli.output import console, print_json
    from recovery.cli.setting_values import effective_line, not_reached

    told = not_reached(stored.effective, names)
    if json:
        print_json(f"{of.texts.name} {how}", {"name": name, **of.one(stored), "not_reached": told})
        return
    console().print(f"{name}: {effective_line(stored, names)}")
    for sentence in told:
        console().print(sentence, style="dim", highlight=False)


def _print(out: Console, found: Found) -> None:
    from rich.text import Text

    from recovery.cli.output import print_rows
    from recovery.cli.setting_values import rows

    state = (" blocked", "red") if found.get("blocked") else ""
    if disabled := found.get("disabled"):
        state = (f" disabled {disabled_text(disabled)}", "red")
    out.print(Text.assemble((found["name"], "bold"), state))
    print_rows(out, ("setting", "value", "from"), list(rows(found["settings"])))


def disabled_text(disabled: Found) -> str:
    """Return since when a process type is disabled, by whom and why."""
    at = f"since {disabled['at']:%Y-%m-%d %H:%M:%S} UTC " if disabled["at"] else ""
    return f"{at}by {disabled['by']}: {disabled['reason']}"
