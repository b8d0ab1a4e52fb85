"""What runs in the workload: ten tasks and one that joins them. Each run has a line in a ledger, whose id is a part of
its result: so it shows which runs were accepted. The ledger's times are the machine's and not a host's.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from recovery import Recovery
from recovery.engine.actors.context import running

FOLDER = "NETWORK_FOLDER"
"""The variable that names the folder of the ledgers."""
HOST = "NETWORK_HOST"

app = Recovery()


def note(file: str, **line: Any) -> None:
    """Add a line to a file of the run, in one write, so that lines of several processes do not mix."""
    text = json.dumps({"at": time.monotonic(), **line}) + "\n"
    descriptor = os.open(Path(os.environ[FOLDER], file), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _begin(key: str) -> dict[str, Any]:
    attempt = running()
    assert attempt is not None, "called by no worker"
    decision = attempt.decision
    run = f"{os.environ[HOST]}-{os.getpid()}-{time.monotonic_ns()}"
    line = {"task": decision.id, "key": key, "attempt": decision.attempts, "run": run, "host": os.environ[HOST]}
    note(f"ledger-{os.environ[HOST]}", event="began", **line)
    return line


def value_of(key: str, number: int) -> int:
    """What a part gives, so that a mix-up shows."""
    return sum(map(ord, key)) * 1000 + number


@app.actor()
def part(key: str, number: int, seconds: float) -> list[Any]:
    """Takes its time and gives its value and its run."""
    line = _begin(key)
    time.sleep(seconds)
    note(f"ledger-{os.environ[HOST]}", event="ended", **line)
    return [value_of(key, number), line["run"]]


@app.actor()
def join(key: str, parts: list[list[Any]]) -> dict[str, Any]:
    """Gives the sum of the parts, and whose runs it saw."""
    line = _begin(key)
    runs = [run for _, run in parts]
    note(f"ledger-{os.environ[HOST]}", event="ended", saw=runs, **line)
    return {"sum": sum(value for value, _ in parts), "saw": runs, "run": line["run"]}


@app.process()
def fan(key: str, seconds: list[float]) -> Any:
    """A part for each of these seconds, and their join."""
    return join.schedule(key, [part.schedule(key, number, took) for number, took in enumerate(seconds)])
