"""The commands of `recovery`, each imported and built once its name is asked for.

To import all of them and have Typer build them takes longer than most commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer.main

from recovery.cli.command_options import CommandGroup

COMMANDS: Mapping[str, str] = {
    "demo": "demo_commands",
    "up": "server_commands",
    "init": "server_commands",
    "worker": "worker_commands",
    "beat": "worker_commands",
    "ping": "worker_commands",
    "start": "start_commands",
    "show": "show_commands",
    "find": "find_commands",
    "list": "find_commands",
    "search": "find_commands",
    "run": "demo_commands",
    "status": "status_commands",
    "workers": "worker_list_commands",
    "disk": "disk_commands",
    "actor": "actor_commands",
    "process-type": "process_type_commands",
    "schedule": "schedule_commands",
    "marker": "marker_commands",
    "operation": "operation_commands",
    "audit": "audit_commands",
    "doctor": "health_commands",
    "drill": "drill_commands",
    "check": "health_commands",
    "broken": "broken_commands",
    "import": "process_commands",
    "restart": "process_commands",
    "abort": "process_commands",
    "retry": "retry_commands",
    "sweep": "sweep_commands",
}
"""{command or group: module of this package whose `commands` has it}, in the order of the help."""


class OnDemand(Mapping[str, Any]):
    """Commands by name, as Typer's groups hold them."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._built:
            self._built.update(build(COMMANDS[name]))
        return self._built[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class RootGroup(CommandGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = OnDemand()  # type: ignore[assignment]  # nothing is added to it


def build(module: str) -> Mapping[str, Any]:
    """Return the commands of a module of this package, or its group, by name."""
    built = typer.main.get_group(import_module(f"recovery.cli.{module}").commands)
    return {built.name: built} if built.name else built.commands
