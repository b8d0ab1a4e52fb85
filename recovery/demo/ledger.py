"""The ledger: what each execution of the demo's actors did and saw, written by the actors themselves.

One JSON line per execution, in the file that WORKFLOW_LEDGER names (not set: no ledger):

    {"process", "id", "task", "nonce", "seen": {parent: nonce}}          a workflow task
    {"process", "id", "nonce", "seen": {leaf: nonce}, "final": true}     the task that collects

    {"canary", "id", "attempt", "at", "pid", "worker"}                   an attempt of a drill's canary, as it begins

`id` is the task's id in its process, `at` the time by this machine's clock. A line is written before the execution
returns, so whatever result was accepted has its line. Writers are many and are killed at any moment: each line is one
write to a file opened for appending, and begins with a line feed too, so that a line that was cut off can't spoil the
next one. A line cut off is not read: its execution was killed before it could return anything.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "WORKFLOW_LEDGER"
"""Not RECOVERY_…: those are settings of the library, and this is the demo's own."""


@dataclass(frozen=True, slots=True)
class Line:
    """One execution: of a workflow's task, or (`final`) of what collects; then `task` is empty."""

    process: str
    id: str
    task: str
    nonce: str
    seen: Mapping[str, str]
    final: bool = False


@dataclass(frozen=True, slots=True)
class Flight:
    """One attempt of a canary, as it began."""

    canary: str
    """Id of its process."""
    id: str
    attempt: int
    at: float
    pid: int
    worker: str


def append(line: dict[str, Any]) -> None:
    """Write a line, whole, or raise OSError; nothing if there is no ledger."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    text = f"\n{json.dumps(line)}\n".encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        written = os.write(descriptor, text)
    finally:
        os.close(descriptor)
    if written != len(text):
        raise OSError(f"{path}: only {written} of {len(text)} bytes written; is the disk full?")


class Reader:
    """Reads a ledger while it is written: every call gives the lines that are new."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_lines(self) -> list[Line]:
        """The whole lines since the last call."""
        return [line for text in self._new_texts() if (line := _parse(text))]

    def new_flights(self) -> list[Flight]:
        """The same of canaries."""
        return [flight for text in self._new_texts() if (flight := _parse_flight(text))]

    def _new_texts(self) -> list[bytes]:
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.split(b"\n")


def read(path: Path) -> list[Line]:
    """All lines of a ledger."""
    return Reader(path).new_lines()


def read_flights(path: Path) -> list[Flight]:
    """All that a ledger has of canaries."""
    return Reader(path).new_flights()


def _parse_flight(text: bytes) -> Flight | None:
    try:
        found = json.loads(text)
        return Flight(**{name: found[name] for name in Flight.__dataclass_fields__})
    except (ValueError, KeyError, TypeError):
        return None


def _parse(text: bytes) -> Line | None:
    try:
        found = json.loads(text)
        return Line(
            process=found["process"],
            id=found["id"],
            task=found.get("task", ""),
            nonce=found["nonce"],
            seen=found["seen"],
            final=found.get("final", False),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None  # empty, or cut off by a kill
