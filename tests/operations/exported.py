"""Finished processes that may be exported, and processes as an export has them, made without having run."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from recovery.engine.end.fencing import remove
from recovery.operations import parquet
from recovery.store import Store, schema
from tests.documents import database_of
from tests.operations.ordering import Ordering
from tests.store.writing import contents
from tests.waiting import wait_until

RECORDS = schema.OF_PROCESSES


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


def long_ago(world: Ordering) -> None:
    """All that has ended has done so two hours ago."""
    ended = {"endedAt": {"$exists": True}}
    database_of(world.store)["processes"].update_many(
        ended, [{"$set": {"endedAt": {"$subtract": ["$endedAt", 7_200_000]}}}]
    )


def at_rest(world: Ordering, *process_ids: str) -> None:
    def is_so() -> bool:
        world.pump()
        world.scan()
        return not world.store.removals.live(process_ids)

    wait_until(is_so, 10, "all to be at rest")


def ended(world: Ordering, count: int) -> list[str]:
    found = [world.end_of(one) for one in world.orders(count)]
    at_rest(world, *found)
    long_ago(world)
    return found


def records(world: Ordering) -> dict[str, dict[str, Any]]:
    return {name: contents(world.store, name) for name in RECORDS}


def lines_of(file: Path) -> list[str]:
    return [*parquet.lines(file)] if file.suffix == parquet.ENDING else file.read_text().splitlines()


def export_of(world: Ordering, key: str, file: Path) -> Path:
    file.write_text(next(iter(world.store.exports.wholes([key]))).line())
    return file


def removed(world: Ordering, key: str) -> None:
    at_rest(world, key)
    assert remove(world.app.resources, [world.process(key)]) == {key}
