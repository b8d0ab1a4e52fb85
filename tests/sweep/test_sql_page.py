"""The five questions of docs/sql.md: each of them is run, and says what the records say."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from recovery.sweep import sweep
from recovery.sweep.table_rows import SCHEMAS
from tests.store.writing import contents
from tests.sweep.conftest import Tables
from tests.sweep.database import Database
from tests.sweep.shapes import BROKEN, HEALTHY

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]
PAGE = (Path(__file__).parents[2] / "docs" / "sql.md").read_text()
BAD_HOUR = datetime(2026, 1, 5, 9, tzinfo=UTC)


def questions() -> list[str]:
    return re.findall(r"```sql\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_page_names_every_table() -> None:
    assert all(f'"{name}"' in PAGE and f"| `{name}` |" in PAGE for name in SCHEMAS)
    assert len(questions()) == 5


def test_the_questions(tables: Tables, database: Database, settings: Any) -> None:
    for shape in (*HEALTHY, *BROKEN, *HEALTHY):
        database.add(shape)
    mongo = database.store.database
    past = {"$set": {"touchedAt": database.store.now() - timedelta(hours=3)}}
    stuck = next(key for key, one in contents(database.store, "processes").items() if one["state"] == "running")
    mongo["graphs"].update_one({"_id": stuck}, past)
    parts = (one for one in contents(database.store, "decisions").values() if one["actor"] == "part")
    bad = next(one["_id"] for one in parts if one["state"] == "finished")
    mongo["decisions"].update_one({"_id": bad}, {"$set": {"outcome.finishedAt": BAD_HOUR, "claimedAt": BAD_HOUR}})
    for name in SCHEMAS.keys() - {"results"}:
        tables.read(name).createOrReplaceTempView(name)
    broken, slow, still, wrong, redo = (tables.spark.sql(one).collect() for one in questions())
    processes, decisions = contents(database.store, "processes"), contents(database.store, "decisions")

    errors = Counter(
        (one["type"], (one.get("error") or {}).get("kind"), (one.get("error") or {}).get("actor"))
        for one in processes.values()
        if one["state"] == "broken"
    )
    assert {(row.type, row.error_kind, row.error_actor): row.processes for row in broken} == errors
    assert errors

    taken = defaultdict[str, list[dict[str, Any]]](list)
    for one in decisions.values():
        if one["state"] == "finished":
            taken[one["actor"]].append(one)
    assert {row.actor: (row.tasks, row.lost) for row in slow} == {
        actor: (len(some), sum(one["timeouts"] for one in some)) for actor, some in taken.items()
    }
    assert next(row for row in slow if row.actor == "part").median_seconds is not None

    assert {row.type for row in still} == {processes[stuck]["type"]}
    of_it = {(one["actor"], one["state"]) for key, one in decisions.items() if key.startswith(stuck)}
    assert {(row.actor, row.state) for row in still} == {one for one in of_it if one[1] not in ("waiting", "finished")}

    told = sweep(settings)
    by_rule = Counter[str]()
    for row in wrong:
        by_rule[row.rule] += row.findings
    assert by_rule == {rule.value: count for rule, count in told.findings.items()}

    assert [row.process for row in redo] == [bad.partition("/")[0]]
