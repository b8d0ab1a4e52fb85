"""`spark.read.format("recovery")`: every record is in its table once, as it is; conditions mean the same wherever they
are answered; and nothing that Spark shows has a password."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import DatetimeMS, Decimal128
from pyspark.errors import PySparkException

from recovery.records import DecisionState
from recovery.rules import Rule
from recovery.settings import Settings
from recovery.store.views.table_columns import TABLES
from recovery.sweep import sweep
from recovery.sweep.table_rows import SCHEMAS
from tests.store.writing import contents
from tests.sweep.conftest import Tables
from tests.sweep.database import Database
from tests.sweep.shapes import BROKEN, HEALTHY, finished, message_lost, running

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


def fill(database: Database) -> list[str]:
    """Every shape that there is, broken ones and healthy ones."""
    return [database.add(shape) for shape in (*HEALTHY, *BROKEN)]


@pytest.mark.parametrize("table", TABLES)
def test_every_record_is_there_once(tables: Tables, database: Database, table: str) -> None:
    fill(database)
    found = tables.read(table, partitions="7").collect()
    stored = contents(database.store, TABLES[table].collection)
    keys = [f"{row.process}/{row.task}" if TABLES[table].of_task else row.process for row in found]
    assert sorted(keys) == sorted(stored)
    for key, row in zip(keys, found, strict=True):
        for column in TABLES[table].columns:
            value: Any = stored[key]
            for name in column.field.split("."):
                value = value.get(name) if isinstance(value, dict) else None
            shown = row[column.name]
            if isinstance(value, datetime):
                shown = shown.replace(tzinfo=UTC)
            elif column.kind.ddl == "bigint" and isinstance(value, list | dict):
                value = len(value)
            elif column.kind.ddl == "array<string>" and isinstance(value, dict):
                value = sorted(value)
            assert shown == value, (key, column)
        assert row.damage is None


def test_a_snapshot_sums_up_each_process(tables: Tables, database: Database) -> None:
    ids = fill(database)
    found = {row.process: row for row in tables.read("snapshots", partitions="3").collect()}
    assert sorted(found) == sorted(key for key in ids if key in contents(database.store, "processes"))
    decisions, tasks = contents(database.store, "decisions"), contents(database.store, "tasks")
    graphs = contents(database.store, "graphs")
    for key, row in found.items():
        own = [one for name, one in decisions.items() if name.startswith(f"{key}/")]
        assert row.decisions == len(own)
        assert row.tasks == sum(name.startswith(f"{key}/") for name in tasks)
        assert row.open == len(graphs.get(key, {}).get("notFinished", ()))
        for state in DecisionState:
            name = "decided" if state is DecisionState.FINISHED else state.value
            assert row[name] == sum(one["state"] == state for one in own)
        assert row.timeouts == sum(one["timeouts"] for one in own)


def test_findings_are_those_of_a_sweep(tables: Tables, database: Database, settings: Settings) -> None:
    fill(database)
    rows = tables.read("findings").collect()
    told = sweep(settings)
    by_rule = {rule: sum(row.rule == rule.value for row in rows) for rule in told.findings}
    assert by_rule == dict(told.findings)
    assert len({row.process for row in rows}) == told.suspects
    of_tasks = [row for row in rows if row.rule == Rule.MESSAGE_LOST]
    assert of_tasks
    assert all(row.actor and row.task and row.type for row in of_tasks)


CONDITIONS = [
    ("processes", "state = 'running'", {"state": {"$eq": "running"}}),
    ("processes", "type = 'order' AND state IN ('finished', 'broken')", {"state": {"$in": ["finished", "broken"]}}),
    (
        "processes",
        "started_at >= timestamp'2020-01-01 00:00:00'",
        {"startedAt": {"$gte": datetime(2020, 1, 1, tzinfo=UTC)}},
    ),
    ("processes", "epoch < 1 AND state <> 'running'", {"epoch": {"$lt": 1}}),
    ("decisions", "timeouts > 0 AND actor = 'part'", {"timeouts": {"$gt": 0}}),
    ("decisions", "process = '{process}'", None),
    ("decisions", "process IN ('{process}', 'nobody')", None),
    ("tasks", "actor = 'part' AND task LIKE 'a%'", {"actor": {"$eq": "part"}}),
    ("graphs", "process > '{process}' AND open = 0", None),
]


SAMPLE = 3
"""Every so many of them; the others are for the soak."""


@pytest.mark.parametrize(
    ("table", "condition", "asked"),
    [
        pytest.param(*case, id=case[1], marks=[pytest.mark.soak] if place % SAMPLE else [])
        for place, case in enumerate(CONDITIONS)
    ],
)
def test_a_condition_means_the_same_to_mongodb(
    tables: Tables, database: Database, table: str, condition: str, asked: dict[str, Any] | None
) -> None:
    ids = fill(database)
    condition = condition.format(process=ids[3])
    mongo = database.store.database
    mongo.command("profile", 2)
    try:
        found = {tuple(map(str, row)) for row in tables.read(table).where(condition).collect()}
        queries = [
            one["command"]["filter"]
            for one in mongo["system.profile"].find({"op": "query"})
            if one["command"].get("find") == TABLES[table].collection
        ]
    finally:
        mongo.command("profile", 0)
        mongo["system.profile"].drop()
    whole = {tuple(map(str, row)) for row in tables.read(table).localCheckpoint().where(condition).collect()}
    assert found == whole
    if asked is not None:
        assert any(asked in query.get("$and", ()) for query in queries), queries


ODD: list[dict[str, Any]] = [
    {"type": ["orders", "refund"]},
    {"type": {"$gt": ""}, "epoch": Decimal128("1")},
    {"epoch": 1.0},
    {"epoch": 1.5, "reopened": [1, 2]},
    {"startedAt": [datetime(2026, 1, 1, tzinfo=UTC)]},
    {"startedAt": DatetimeMS(8_640_000_000_000_000_000)},
    {"error": [{"kind": "ValueError", "code": 1}]},
    {"idleTimeout": float("nan")},
    {"idleTimeout": 2**63 - 1, "retriedBySchedule": 1},
    {"startedAt": None, "type": None, "epoch": None},
]
"""What another program may have written into a process."""


@pytest.mark.soak
def test_a_condition_means_the_same_of_damaged_records(tables: Tables, database: Database) -> None:
    for odd in ODD:
        update = {"q": {"_id": database.add(running)}, "u": {"$set": odd}}
        database.store.database.command("update", "processes", updates=[update], bypassDocumentValidation=True)
    whole = tables.read("processes").localCheckpoint()
    for condition in (
        "type = 'orders'",
        "type IN ('orders', 'refund') AND state = 'running'",
        "epoch >= 1",
        "epoch < 2 AND reopened = 2",
        "started_at >= timestamp'2020-01-01 00:00:00'",
        "error_kind = 'ValueError' AND error_code <= 1",
        "idle_timeout > 100",
        "idle_timeout >= 9223372036854775808D",
    ):
        found, wanted = (
            sorted(row.process for row in frame.where(condition).collect())
            for frame in (tables.read("processes"), whole)
        )
        assert found == wanted, condition
    (shown,) = whole.where("epoch = 1").collect()
    assert shown.damage is None, "as a shell writes it"


def test_a_selection_is_a_search(tables: Tables, database: Database) -> None:
    fill(database)
    for table in SCHEMAS.keys() - {"results"}:
        some = tables.read(table, selection="state:finished").select("process").distinct().collect()
        wanted = {key for key, one in contents(database.store, "processes").items() if one["state"] == "finished"}
        assert {row.process for row in some} <= wanted
        if table == "processes":
            assert {row.process for row in some} == wanted


def test_one_record_that_cannot_be_read_costs_one_line(tables: Tables, database: Database) -> None:
    bad, good = database.add(running), database.add(running)
    for name, change in (
        ("processes", {"type": 5, "labels": "x"}),
        ("graphs", {"notFinished": 7, "touchedAt": "yesterday"}),
    ):
        database.store.database.command(
            "update", name, updates=[{"q": {"_id": bad}, "u": {"$set": change}}], bypassDocumentValidation=True
        )
    rows = {row.process: row for row in tables.read("processes").collect()}
    assert (rows[bad].type, rows[bad].labels, rows[bad].damage) == (None, None, ["type", "labels"])
    assert rows[good].damage is None
    shown = {row.process: row for row in tables.read("snapshots").collect()}
    assert shown[bad].damage == ["notFinished", "touchedAt", "type"]
    assert shown[good].damage is None
    damaged = [row for row in tables.read("findings").collect() if row.process == bad]
    assert {row.rule for row in damaged} == {Rule.RECORD_DAMAGED}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"table": "proceses"}, "no table has this name; did you mean 'processes'"),
        ({"table": ""}, "there are: processes, decisions"),
        (
            {"table": "tasks", "selektion": "state:finished"},
            "option 'selektion' is not known; did you mean 'selection'",
        ),
        ({"table": "tasks", "selection": "stat:finished"}, "did you mean"),
        ({"table": "tasks", "partitions": "0"}, "give a whole number from 1 to 10,000"),
        pytest.param(
            {"table": "tasks", "uri": "mongodb://u:s3cret@127.0.0.1:1/"}, "127.0.0.1:1", marks=pytest.mark.soak
        ),
    ],
)
def test_what_can_not_be_read(tables: Tables, options: dict[str, str], told: str) -> None:
    with pytest.raises(PySparkException) as caught:
        tables.read(**options).count()
    assert told in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_nothing_that_spark_shows_has_a_password(tables: Tables, database: Database, capsys: Any) -> None:
    database.add(finished)
    admin, name = database.store.database.client.admin, f"analyst_{database.store.database.name}"
    admin.command("createUser", name, pwd="s3cret", roles=["readAnyDatabase"])
    address = tables.settings.mongo_uri.replace("//", f"//{name}:s3cret@") + "&authSource=admin"
    frame = tables.read("processes", uri=address)
    assert frame.count() == 1
    with pytest.raises(PySparkException) as caught:
        frame.selectExpr("assert_true(state = 'nothing', 'no')").collect()
    assert "s3cret" not in str(caught.value)
    for mode in ("simple", "extended", "codegen", "cost", "formatted"):
        frame.where("state = 'finished'").explain(mode=mode)
    frame.createOrReplaceTempView("processes_of_ours")
    tables.spark.sql("DESCRIBE EXTENDED processes_of_ours").show(100, False)
    shown = capsys.readouterr().out
    assert "recovery" in shown.lower()
    assert "s3cret" not in shown
    admin.command("dropUser", name)


def test_ranges_are_even(tables: Tables, database: Database) -> None:
    for _ in range(60):
        database.add(message_lost)
    counts = tables.read("processes", partitions="4").rdd.mapPartitions(lambda rows: [sum(1 for _ in rows)]).collect()
    assert sum(counts) == 60
    assert max(counts) <= 2 * 60 / len(counts)
