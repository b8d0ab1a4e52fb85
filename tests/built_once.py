"""The command line built once in a process. Typer builds all of its commands anew for each that is run, which takes 40
milliseconds and longer than most of them; what it builds keeps nothing of a run."""

from __future__ import annotations

from functools import lru_cache
from unittest.mock import patch

import typer.main
import typer.testing


def build_commands_once() -> None:
    """For `app(…)` and `CliRunner`, from here on."""
    once = lru_cache(typer.main.get_command)
    patch.object(typer.main, "get_command", once).start()
    patch.object(typer.testing, "_get_command", once).start()
