"""What docs/collection.md asks of an export: each question is run, and says what the exported records say."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recovery.engine import Resources
from recovery.operations.export import append
from recovery.records import Operation, OperationKind
from recovery.records.operation import ExportFormat
from tests.docs.blocks import DOCS, blocks
from tests.store.writing import contents
from tests.sweep.conftest import Tables
from tests.sweep.database import Database
from tests.sweep.shapes import BROKEN, HEALTHY

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]
PAGE = DOCS / "collection.md"
EXPORTS = "/mnt/exports"


@pytest.mark.soak
def test_the_questions(tables: Tables, database: Database, settings: Any, tmp_path: Path) -> None:
    for shape in (*HEALTHY, *BROKEN, *HEALTHY):
        database.add(shape)
    processes, decisions = contents(database.store, "processes"), contents(database.store, "decisions")
    resources, ids = Resources.connect(settings), sorted(processes)
    for kind in ExportFormat:
        operation = Operation(id=1, kind=OperationKind.COLLECT, export=str(tmp_path), export_format=kind)
        append(resources, operation, ids[:5])
        append(resources, operation, ids)  # the first were written twice: their worker was killed
    (setup,) = blocks(PAGE, "python")
    assert EXPORTS in setup
    exec(setup.replace(EXPORTS, str(tmp_path)), {})
    for name in ("processes", "decisions"):
        tables.read(name).createOrReplaceTempView(name)
    by_state, slow, months = (tables.spark.sql(one).collect() for one in blocks(PAGE, "sql"))

    states = Counter((one["type"], one["state"]) for one in processes.values())
    assert {(row.type, row.state): row.processes for row in by_state} == states
    assert {row.actor: row.tasks for row in slow} == Counter(one["actor"] for one in decisions.values())
    assert any(row.p99_seconds is not None for row in slow)
    assert sum(row.started for row in months) == len(processes), "each once, though it is in both"
    assert {row.type for row in months} == {one["type"] for one in processes.values()}

    live = {row.process: row.asDict() for row in tables.spark.table("processes").collect()}
    exported = tables.spark.table("exported").select(tables.spark.table("processes").columns).collect()
    assert {row.process: row.asDict() for row in exported} == live, "columns mean the same"
    lines = tables.spark.read.json(f"{tmp_path}/*.jsonl").select("process._id", "process.type").distinct()
    assert {row[0]: row.type for row in lines.collect()} == {key: one["type"] for key, one in processes.items()}
    first = tables.spark.read.parquet(f"{tmp_path}/*.parquet").where(f"process = '{ids[0]}'").first()
    assert first is not None and json.loads(first.record)["process"]["_id"] == ids[0]
