"""The ledger: a file in which the demo's actors record each execution and what it saw.

It has one JSON line per execution. The environment variable WORKFLOW_LEDGER names the file; if it is not set, nothing
is recorded:

    {"process", "id", "task", "nonce", "seen": {parent: nonce}}          a workflow task
    {"process", "id", "nonce", "seen": {leaf: nonce}, "final": true}     the task that collects

    {"canary", "id", "attempt", "at", "pid", "worker"}                   an attempt of a drill's canary, as it begins

`id` is the task's id in its process, and `at` the time by this machine's clock. A line is written before the execution
returns, so every accepted result has its line.

Many writers are killed at any moment. So each line is one write to a file opened for appending, and also begins with a
line feed, so that an incomplete line does not spoil the next one. An incomplete line is ignored: its execution was
killed before it could return anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "WORKFLOW_LEDGER"
"""Environment variable with the path of the ledger. Its name does not begin with RECOVERY_, because it is not a setting
of the library."""


@dataclass(frozen=True, slots=True)
class Line:
    """An execution of a workflow's task, or of the collecting task (`final`), whose `task` is empty."""

    process: str
    id: str
    task: str
    nonce: str
    seen: Mapping[str, str]
    final: bool = False


@dataclass(frozen=True, slots=True)
class Flight:
    """An attempt of a canary, as it began."""

    canary: str
    """Id of the canary's process."""
    id: str
    attempt: int
    at: float
    pid: int
    worker: str


def append(line: dict[str, Any]) -> None:
    """Append a whole line to the ledger, if there is one. Raises OSError."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    encoded = f"\n{json.dumps(line)}\n".encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        written = os.write(descriptor, encoded)
    finally:
        os.close(descriptor)
    if written != len(encoded):
        raise OSError(f"{path}: only {written} of {len(encoded)} bytes written; is the disk full?")


class Reader:
    """Reads a ledger while it is written. Each call returns the new lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_lines(self) -> list[Line]:
        """Return the complete lines since the last call."""
        return [line for text in self._new_texts() if (line := _parse(text))]

    def new_flights(self) -> list[Flight]:
        """Return the complete lines of canaries since the last call."""
        return [flight for text in self._new_texts() if (flight := _parse_flight(text))]

    def _new_texts(self) -> list[bytes]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        return complete.split(b"\n")


def read(path: Path) -> list[Line]:
    """Return all lines of a ledger."""
    return Reader(path).new_lines()


def read_flights(path: Path) -> list[Flight]:
    """Return all lines of canaries in a ledger."""
    return Reader(path).new_flights()


def _parse_flight(text: bytes) -> Flight | None:
    try:
        fields = json.loads(text)
        return Flight(**{name: fields[name] for name in Flight.__dataclass_fields__})
    except (ValueError, KeyError, TypeError):
        return None


def _parse(text: bytes) -> Line | None:
    try:
        fields = json.loads(text)
        return Line(
            process=fields["process"],
            id=fields["id"],
            task=fields.get("task", ""),
            nonce=fields["nonce"],
            seen=fields["seen"],
            final=fields.get("final", False),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # empty, or cut off by a kill
