"""What `recovery actor` and `recovery process-type` have in common: showing, setting and unsetting of settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from recovery.cli.output import JsonOption, paragraphs

if TYPE_CHECKING:
    from rich.console import RenderableType

    from recovery.engine import Resources
    from recovery.engine.operations.overrides import ActorOverrides, ProcessTypeOverrides
    from recovery.records import Stored

    Kind = type[ActorOverrides] | type[ProcessTypeOverrides]

Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False)]
Assignments = Annotated[list[str], typer.Argument(metavar="SETTING=VALUE", show_default=False)]
Names = Annotated[list[str], typer.Argument(metavar="SETTING", show_default=False)]
Found = dict[str, Any]


@dataclass(frozen=True)
class Help:
    """The texts of a group's commands."""

    group: str
    list: str
    show: str
    set: str
    unset: str


def group(
    texts: Help,
    kind: Callable[[], Kind],
    look: Callable[[Resources], dict[str, Found]],
    one: Callable[[Stored[Any]], Found],
    table: Callable[[dict[str, Found]], RenderableType],
) -> typer.Typer:
    """The commands `list`, `show`, `set` and `unset` over one kind of settings.

    `kind` imports what is worked with, when a command is run. `look` and `one` give all, or what is kept under one
    name, as JSON has it; `table` shows all of them to people.
    """
    made = typer.Typer(help=paragraphs(texts.group), no_args_is_help=True)

    @made.command("list", help=paragraphs(texts.list))
    def list_(json: JsonOption = False) -> None:
        from recovery.cli.output import connect

        _print(look(connect()), json, table)

    @made.command(help=paragraphs(texts.show))
    def show(name: Name, json: JsonOption = False) -> None:
        from recovery.cli.output import connect

        _print({"name": name, **one(kind()(connect()).get(name))}, json, _shown)

    @made.command("set", help=paragraphs(texts.set))
    def set_(name: Name, settings: Assignments) -> None:
        from recovery.cli.output import connect
        from recovery.cli.settings import parse

        changes = parse(kind().kind, settings, name)
        overrides = kind()(connect())
        overrides.set(name, changes)
        _tell(name, overrides.get(name), changes)

    @made.command(help=paragraphs(texts.unset))
    def unset(name: Name, settings: Names) -> None:
        from recovery.cli.output import connect
        from recovery.cli.settings import check_names

        check_names(kind().kind, settings, f"unset {name} {' '.join(settings)}")
        overrides = kind()(connect())
        overrides.unset(name, settings)
        _tell(name, overrides.get(name), dict.fromkeys(settings))

    return made


def _tell(name: str, stored: Stored[Any], settings: Iterable[str]) -> None:
    """What holds now that these settings were changed."""
    from recovery.cli.output import console
    from recovery.cli.settings import effective_line

    console().print(f"{name}: {effective_line(stored, settings)}", soft_wrap=True)


def _print(found: Found, json: bool, shown: Callable[[Found], RenderableType]) -> None:
    import json as json_module

    from recovery.cli.output import console

    if json:
        print(json_module.dumps(found))
    else:
        console().print(shown(found), crop=False)


def _shown(found: Found) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from recovery.cli.settings import table

    state = (" blocked", "red") if found.get("blocked") else ""
    return Group(Text.assemble((found["name"], "bold"), state), table(found["settings"]))
