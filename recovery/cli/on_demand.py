"""The commands of `recovery`, each imported and built once its name is asked for.

To import all of them and have Typer build them takes longer than most commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer.main

from recovery.cli.options import CommandGroup

MODULES: Mapping[str, tuple[str, ...]] = {
    "demo": ("demo",),
    "servers": ("up", "init"),
    "workers": ("worker", "beat", "ping"),
    "start": ("start",),
    "show": ("show",),
    "find": ("find", "list"),
    "searches": ("search",),
    "run": ("run",),
    "status": ("status",),
    "worker_list": ("workers",),
    "disk": ("disk",),
    "actors": ("actor",),
    "process_types": ("process-type",),
    "schedules": ("schedule",),
    "markers": ("marker",),
    "operations": ("operation",),
    "audit": ("audit",),
    "doctor": ("doctor",),
    "drill": ("drill",),
    "check": ("check",),
    "broken": ("broken",),
    "imports": ("import",),
    "restart": ("restart",),
    "abort": ("abort",),
    "retry": ("retry",),
    "sweep": ("sweep",),
}
"""{module of this package: names of the commands and groups that its `add_to` registers}, in the order of the help."""


class OnDemand(Mapping[str, Any]):
    """Commands by name, as Typer's groups hold them."""

    def __init__(self) -> None:
        self._modules = {name: module for module, names in MODULES.items() for name in names}
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built.update(build(self._modules[name]))
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class Commands(CommandGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = OnDemand()  # type: ignore[assignment]  # nothing is added to it


def build(module: str) -> Mapping[str, Any]:
    """Return what a module of this package adds to the command line."""
    added = typer.Typer(rich_markup_mode="rich")
    import_module(f"recovery.cli.{module}").add_to(added)
    return typer.main.get_group(added).commands
