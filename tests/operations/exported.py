"""Finished processes as an export has them, made without having run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from recovery.store import Store


def made(number: int, **process: Any) -> str:
    """A process as a line of an export: one that was made by another program."""
    key, moment = f"{number:032x}", {"$date": "2026-01-05T09:00:00Z"}
    of_it: dict[str, Any] = {"_id": key, "epoch": 0, "idleTimeout": 60.0}
    ended = {"type": "order", "args": "[[],{}]", "state": "finished", "startedAt": moment, "endedAt": moment}
    graph = {"notFinished": {}, "links": {}, "finished": ["start"], "failed": {}, "version": 1, "touchedAt": moment}
    task = {"_id": f"{key}/start", "actor": "order", "args": "[[],{}]", "epoch": 0}
    outcome = {"pass": "k", "value": "1", "finishedAt": moment}
    decision = {"state": "finished", "attempts": 1, "timeouts": 0, "outcome": outcome}
    return json.dumps(
        {
            "process": {**of_it, "startTask": "start", **ended, **process},
            "graph": {**of_it, **graph},
            "tasks": [task],
            "decisions": [{**task, "args": "", **decision}],
        }
    )


def bring(store: Store, lines: Iterable[str]) -> None:
    """Save processes as an import does."""
    store.imports.save([store.exports.parsed(line) for line in lines])
