"""What `--json` prints: one object, which names its version and the command. docs/commands.md describes each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

VERSION = 1
"""Of the shape. A key may be added within a version; one that goes, or means something else, makes a new one."""


def print_json(command: str, found: Mapping[str, Any]) -> None:
    """Print what a command found. Times are ISO 8601 in UTC, ages and durations are seconds."""
    print(json.dumps({"version": VERSION, "command": command, **found}, default=datetime.isoformat))
