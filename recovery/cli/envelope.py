"""What `--json` prints: one object, which names its version and the command. docs/commands.md describes each."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

VERSION = 1
"""Of the shape. A key may be added within a version; one that goes, or means something else, makes a new one."""


def print_json(command: str, found: Mapping[str, Any]) -> None:
    """Print what a command found. Times are ISO 8601 in UTC, ages and durations are seconds."""
    print(_dumped({"version": VERSION, "command": command, **found}))


def stream_json(command: str, found: Mapping[str, Any], name: str, rows: Iterable[Any]) -> None:
    """The same with `rows` under a name at its end, each printed as it comes: there may be millions. Cut off in between
    it is no JSON."""
    sys.stdout.write(f"{_dumped({'version': VERSION, 'command': command, **found})[:-1]}, {_dumped(name)}: [")
    for place, row in enumerate(rows):
        sys.stdout.write(f"{', ' if place else ''}{_dumped(row)}")
    sys.stdout.write("]}\n")


def _dumped(value: Any) -> str:
    return json.dumps(value, default=datetime.isoformat)
