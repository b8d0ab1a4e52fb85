"""The commands of `recovery`, each imported and built once its name is asked for.

To import all of them and have Typer build them takes longer than most commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer.main

from recovery.cli.command_options import CommandGroup

MODULES: Mapping[str, tuple[str, ...]] = {
    "demo_commands": ("demo",),
    "server_commands": ("up", "init"),
    "worker_commands": ("worker", "beat", "ping"),
    "start_commands": ("start",),
    "show_commands": ("show",),
    "find_commands": ("find", "list"),
    "search_commands": ("search",),
    "run_commands": ("run",),
    "status_commands": ("status",),
    "worker_list_commands": ("workers",),
    "disk_commands": ("disk",),
    "actor_commands": ("actor",),
    "process_type_commands": ("process-type",),
    "schedule_commands": ("schedule",),
    "marker_commands": ("marker",),
    "operation_commands": ("operation",),
    "audit_commands": ("audit",),
    "doctor_commands": ("doctor",),
    "drill_commands": ("drill",),
    "check_commands": ("check",),
    "broken_commands": ("broken",),
    "process_commands": ("import", "restart", "abort"),
    "retry_commands": ("retry",),
    "sweep_commands": ("sweep",),
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
