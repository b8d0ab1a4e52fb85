"""The whole sweep, in Spark: it finds each kind of defect and nothing else, and repairs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bson import DatetimeMS, ObjectId
from pyspark import SparkContext
from typer.testing import CliRunner

from recovery.cli.main import app
from recovery.engine import Resources
from recovery.errors import ServerUnavailable, SparkUnavailable, StoreUnavailable, SweepFailed, UnknownProcessType
from recovery.metrics import LAG, REPAIRS, carried_counts
from recovery.operations import OperationWorker
from recovery.records import Decision, DecisionState, OperationState, ProcessState, ProcessTypePreferences
from recovery.records.ids import new_process_id, record_id
from recovery.rules import Rule
from recovery.settings import Settings
from recovery.store import schema
from recovery.store.operators.operation_records import Operations
from recovery.store.operators.operation_results import OperationResults
from recovery.store.views.ranges import Range
from recovery.survey import examine
from recovery.survey.read import RangeCounts, look_for_tasks, survey
from recovery.sweep import ask, drive, job, sums, sweep
from recovery.sweep.session import check_master, connected_session, without_frames
from recovery.sweep.sweep_report import SHOWN
from tests.cli import schemas
from tests.cli.terminal import CUT, in_terminal, too_wide
from tests.failure_map import parity
from tests.sweep.database import SOON, Database
from tests.sweep.shapes import (
    BROKEN,
    HEALTHY,
    MERGE,
    ONLY_TOLD,
    Shape,
    children_missing,
    deadline_missing,
    due,
    finish_not_recorded,
    finished,
    message_lost,
    not_applied,
    not_applied_but_ended,
    part,
    ready_not_queued,
    running,
    start_not_registered,
    work_timeout,
)

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


def test_command_line(database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    process_id = database.add(deadline_missing)
    process = database.store.processes.get(process_id)
    assert process is not None
    told = CliRunner().invoke(app, ["sweep", "--here", "--type", process.type]).stdout
    (sample,) = (line.split() for line in told.splitlines() if "sample" in line)
    assert sample[:2] == ["sample", "DEADLINE_MISSING"] and sample[2].startswith(process_id) and "{" not in told
    found = schemas.read("sweep", CliRunner().invoke(app, ["sweep", "--here", "--type", process.type, "--json"]).stdout)
    assert found["findings"] == {"DEADLINE_MISSING": 1}
    error = CliRunner().invoke(app, ["sweep", "--here", "--type", "nosuch"]).exception
    assert isinstance(error, UnknownProcessType) and "no process of type 'nosuch' was seen; " in str(error)
    database.store.process_types.save([ProcessTypePreferences(id="nosuchs")])
    error = CliRunner().invoke(app, ["sweep", "--here", "--type", "nosuch"]).exception
    assert "did you mean 'nosuchs'?" in str(error)
    assert CliRunner().invoke(app, ["sweep", "--here", "--type", "nosuchs"]).exit_code == 0, "a worker has told of it"


@pytest.mark.soak
def test_in_a_terminal(database: Database, settings: Settings) -> None:
    process_id = database.add(deadline_missing)
    wrapped = CUT.sub("", in_terminal("sweep", "--here", env=settings.environment()))
    assert too_wide(wrapped) == [] and process_id in wrapped and "DEADLINE_MISSING" in wrapped


@pytest.mark.smoke
def test_finds_each_defect_and_no_healthy_process(database: Database, settings: Settings) -> None:
    for _ in range(5):
        for shape in HEALTHY:
            database.add(shape)
    broken = {database.add(shape): rule for shape, rule in BROKEN.items()}
    report = sweep(settings)
    assert report.processes == 5 * len(HEALTHY) + len(broken)
    assert report.suspects == len(broken)
    assert [(suspect.process_id, suspect.rule) for suspect in report.sample] == sorted(broken.items())[:SHOWN]
    assert report.findings == Counter(broken.values())
    assert report.repaired == {}
    assert all(suspect.evidence for suspect in report.sample)
    summary = json.loads(json.dumps(report.summary()))
    assert summary["findings"]["DECISION_NOT_APPLIED"] == 2
    assert summary["decisions"] == report.decisions > 12 * 10


def test_repairs_each_defect(database: Database, settings: Settings) -> None:
    ids = {shape: database.add(shape) for shape in BROKEN}
    healthy = database.add(running)
    before = database.store.snapshots([healthy])
    report = sweep(settings, repair=True)
    assert set(report.repaired) == {*BROKEN.values()} - {BROKEN[shape] for shape in ONLY_TOLD}

    def decision(shape: Shape, task: str) -> Decision:
        found = database.store.decisions.get(record_id(ids[shape], task))
        assert found is not None
        return found

    for shape, task in ((work_timeout, part(1)), (due, part(2)), (message_lost, part(0)), (ready_not_queued, MERGE)):
        found = decision(shape, task)
        assert found.state is DecisionState.QUEUED and found.pass_key != "0" * 32, shape
    assert decision(deadline_missing, part(1)).recovery_time is not None
    assert decision(not_applied_but_ended, part(1)).recovery_time is None
    graph = database.store.graphs.get(ids[not_applied])
    assert graph is not None and part(1) in graph.finished and part(1) not in graph.not_finished
    assert database.store.tasks.get(record_id(ids[children_missing], MERGE)) is not None
    assert database.store.graphs.get(ids[start_not_registered]) is not None
    process = database.store.processes.get(ids[finish_not_recorded])
    assert process is not None and process.state is ProcessState.FINISHED
    assert database.store.snapshots([healthy]) == before

    # What was stamped got a deadline of then, and is overdue now; but for that, all is well.
    told = {BROKEN[shape] for shape in ONLY_TOLD}
    assert set(sweep(settings, repair=True).findings) - told <= {Rule.WORK_TIMEOUT}
    assert set(sweep(settings).findings) == {Rule.FINISHED_TOO_EARLY}


@pytest.mark.smoke
def test_finds_what_a_recovery_worker_finds(database: Database, settings: Settings) -> None:  # noqa: ARG001
    """In every condition of the failure map, damage included; `tests/failure_map/test_parity.py` has the others."""
    cases = parity.all_cases(settings)
    world = parity.fill(settings, cases)
    found = parity.by_operation(world, thorough=True)
    assert parity.by_spark(world) == found and {Rule(rule) for _, rule, _ in found} >= {*BROKEN.values()}


def test_dates_that_python_has_not(database: Database, settings: Settings) -> None:
    """Read as the last or the first that there is: each is found or not, and the others are."""
    fields = {"decisions": ["recoveryTime", "queuedAt", "eta"], "graphs": ["recoveryTime", "touchedAt"],
              "processes": ["recoveryTime", "startedAt"]}  # fmt: skip
    for name, of_collection in fields.items():
        for field in of_collection:
            for milliseconds in (8_640_000_000_000_000_000, -8_640_000_000_000_000_000):
                key = {"_id": {"$regex": f"^{database.add(running)}"}}
                database.store.database[name].update_many(key, {"$set": {field: DatetimeMS(milliseconds)}})
    found = database.add(work_timeout)
    for repair in (True, False):
        report = sweep(settings, repair=repair)
        assert report.processes == 2 * sum(map(len, fields.values())) + 1
        assert (found in {suspect.process_id for suspect in report.sample}) is repair


def test_records_of_no_process(database: Database, settings: Settings) -> None:
    """Before, between and after processes that are there; what only started meanwhile is none."""
    ids = [database.add(shape) for shape in (running, running, finished, running, finished, running)]
    for gone in (ids[0], ids[2], ids[5]):
        database.store.database["processes"].delete_one({"_id": gone})
    report = sweep(settings)
    assert report.findings == {Rule.ORPHAN: 3}
    assert sorted(suspect.process_id for suspect in report.sample) == sorted((ids[0], ids[2], ids[5]))


def test_tasks_of_no_process(database: Database, settings: Settings) -> None:
    """They are met where a range has not as many as were seen; else if asked for."""
    gone, also_gone, lacking = database.add(finished), database.add(finished), database.add(finished)
    for key, names in {gone: ("processes", "graphs", "decisions"), also_gone: ("processes", "graphs", "tasks")}.items():
        for name in names:
            database.store.database[name].delete_many({"_id": {"$regex": f"^{key}"}})
    assert {suspect.process_id for suspect in sweep(settings).sample} == {gone, also_gone}
    database.store.database["tasks"].delete_many({"_id": {"$regex": f"^{lacking}"}})
    for thorough, found in ((False, {also_gone}), (True, {gone, also_gone})):
        seen = RangeCounts()  # of one range
        assert not any(survey(database.store.ranges, Range(), seen))
        assert not any(look_for_tasks(database.store.ranges, Range(), seen, thorough=thorough))
        assert seen.orphans == found


def test_keys_that_are_no_texts(database: Database, settings: Settings) -> None:
    overdue = database.add(work_timeout)
    for name in ("processes", "graphs", "decisions", "tasks"):
        for key in (ObjectId(), 5, {"a": 1}):
            database.store.database[name].insert_one({"_id": key}, bypass_document_validation=True)
    report = sweep(settings, thorough=True)
    assert (report.processes, [suspect.process_id for suspect in report.sample]) == (1, [overdue])


def test_one_process_type(database: Database, settings: Settings) -> None:
    chosen = database.add(work_timeout, process_type="billing")
    database.add(work_timeout)
    database.add(finished, process_type="billing")
    report = sweep(settings, repair=True, process_type="billing")
    assert (report.processes, report.suspects) == (2, 1)
    assert [suspect.process_id for suspect in report.sample] == [chosen]
    assert report.repaired == {Rule.WORK_TIMEOUT: 1}
    assert sweep(settings).findings == {Rule.WORK_TIMEOUT: 1}


def test_many_of_one_type_are_read_as_a_range(
    database: Database, monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(examine, "FEW", 1)
    database.add(work_timeout)
    for shape in (finished, running, work_timeout):
        database.add(shape, process_type="billing")
    report = sweep(settings, process_type="billing")
    assert (report.processes, report.suspects) == (3, 1)


def test_sums(database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark sums up as MongoDB does, by type, rule and actor."""
    for number in range(3):
        database.add(work_timeout, process_type="billing")
        database.add((deadline_missing, message_lost, work_timeout)[number])
    twice = work_timeout(new_process_id(), database.now)
    lost = twice.decisions[part(1)]
    twice = twice.change(part(0), state=lost.state, worker=lost.worker, recovery_time=lost.recovery_time)
    database.insert(twice, process_type="billing")
    by_mongodb = operations_of(database).get(sweep(settings).operation)
    monkeypatch.setattr(sums, "FROM", 1)
    monkeypatch.setattr(OperationResults, "sums", lambda *_: ())
    by_spark = operations_of(database).get(sweep(settings).operation)
    assert by_mongodb is not None and by_spark is not None and by_spark.sums
    assert by_spark.sums == by_mongodb.sums
    told = [(one.type, one.rule, one.count) for one in by_spark.sums]
    assert ("billing", "WORK_TIMEOUT", 5) in told and len(told) == 4 and all(one.actor for one in by_spark.sums)


def operations_of(database: Database) -> Operations:
    return database.store.operations


def cancelled_for(database: Database, settings: Settings, target: str) -> str:
    """Why a sweep that writes there is cancelled."""
    cancelled = operations_of(database).get(sweep(settings, parquet=target).operation)
    assert cancelled is not None and cancelled.state is OperationState.CANCELLED
    return cancelled.refusal or ""


def test_what_executors_count_is_counted_here(database: Database, settings: Settings) -> None:
    """A process that nobody scrapes: what it counted is carried to the driver's."""

    def repaired() -> float:
        return REPAIRS.labels(rule="WORK_TIMEOUT", actor="part", source="operation")._value.get()

    for _ in range(3):
        database.add(work_timeout)
    before, counted = repaired(), carried_counts.counted()
    assert sweep(settings, repair=True).repaired == {Rule.WORK_TIMEOUT: 3}
    assert repaired() - before == 3
    lag = {name: value for (name, _), value in carried_counts.grown(counted).items() if name.startswith(LAG._name)}
    assert lag.keys() == {f"{LAG._name}_bucket", f"{LAG._name}_sum"} and lag[f"{LAG._name}_sum"] > 0


def test_a_task_that_fails_loses_no_counts(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither its own nor those of the others of its job."""
    database.add(finished)
    resources, works = Resources.connect(settings), iter([2, 0, 3])

    def work_once(*_: Any) -> None:
        number = next(works)
        REPAIRS.labels(rule="WORK_TIMEOUT", actor="part", source="operation").inc(number or 1)
        if not number:
            raise StoreUnavailable("MongoDB is away")

    def in_this_process(_: Any, tasks: int, work: job.Work) -> list[job.Worked]:  # noqa: ARG001
        return [job.work_at_a_range(work) for _ in range(3)]

    monkeypatch.setattr(OperationWorker, "work_once", work_once)
    monkeypatch.setattr(drive, "run", in_this_process)
    monkeypatch.setattr(drive, "SPARK_JOB", SOON)
    driver, operation = drive.Driver(SparkContext.getOrCreate(), resources, "driver"), ask(resources, here=True)
    before = carried_counts.counted()
    while next(iter(done := carried_counts.grown(before)), None) is None:
        assert driver.step(operation.id)
    # Here it was counted where it is carried to: twice.
    assert list(done.values()) == [2 * (2 + 1 + 3)]
    assert "a job in Spark failed: MongoDB is away" in caplog.text


def test_a_master_that_does_not_answer() -> None:
    told = "master at RECOVERY_SPARK_MASTER=spark://127.0.0.1:1,127.0.0.1:2 does not answer"
    with pytest.raises(SparkUnavailable, match=told):
        check_master("spark://127.0.0.1:1,127.0.0.1:2")
    with (
        pytest.raises(SparkUnavailable, match=r"at 127\.0\.0\.1:1 does not answer|needs grpc"),
        connected_session("sc://127.0.0.1:1"),
    ):
        raise AssertionError("there is none")


def test_an_empty_database(settings: Settings) -> None:
    report = sweep(settings)
    assert (report.processes, report.decisions, report.suspects, report.ranges) == (0, 0, 0, 1)
    assert report.findings == report.repaired == {}


def test_a_session_that_was_there_stays(settings: Settings) -> None:
    before = SparkContext._active_spark_context
    sweep(settings)
    assert SparkContext._active_spark_context is before is not None


SPOILT: list[tuple[str, str, Any]] = [
    ("processes", "state", "sleeping"),
    ("processes", "recoveryTime", "soon"),
    ("processes", "result", 5),
    ("graphs", "finished", 3),
    ("graphs", "notFinished", "none"),
    ("decisions", "losses", "0"),
    ("decisions", "outcome.value", 7),
    ("decisions", "children", {"a": 1}),
    ("tasks", "args", [1]),
]


def test_a_failing_range_names_its_cause(
    database: Database, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drive, "SPARK_JOB", SOON)
    database.add(finished)
    database.store.database[schema.TASKS].drop()
    odd = [{"$set": {"there": {"$divide": [1, 0]}}}]
    database.store.database.create_collection(schema.TASKS, viewOn=schema.PROCESSES, pipeline=odd)
    with pytest.raises(SweepFailed, match="can't \\$divide by zero"):
        sweep(settings)


def test_records_that_can_not_be_read_are_told(database: Database, settings: Settings) -> None:
    """At rest or live, in what a sweep reads and in what it does not; they end nothing."""
    whole = database.add(work_timeout)
    spoilt: dict[str, str] = {}
    for shape in (finished, running):
        for name, field, value in SPOILT:
            spoilt[_spoil(database, database.add(shape), name, field, value)] = field.partition(".")[0]
    report = sweep(settings, thorough=True)
    told = {suspect.process_id: suspect for suspect in report.sample}
    assert report.findings == {Rule.RECORD_DAMAGED: len(spoilt), Rule.WORK_TIMEOUT: 1}
    assert told.keys() == {whole, *spoilt}
    for key, field in spoilt.items():
        assert told[key].rule is Rule.RECORD_DAMAGED and f"its {field} is " in told[key].evidence, told[key]


def test_damage_where_no_rule_looks(database: Database, settings: Settings) -> None:
    """Of the process and the graph of what goes on it is told each time; of what has other findings, too, if asked."""
    goes_on = {
        _spoil(database, database.add(running), name, field, value)
        for name, field, value in (("processes", "args", 1), ("processes", "result", 5), ("graphs", "idleTimeout", "1"))
    }
    overdue = _spoil(database, database.add(work_timeout), "tasks", "args", [1])
    found = {(one.process_id, one.rule) for one in sweep(settings).sample}
    assert found == {*((key, Rule.RECORD_DAMAGED) for key in goes_on), (overdue, Rule.WORK_TIMEOUT)}
    assert sweep(settings, thorough=True).findings == {Rule.RECORD_DAMAGED: 4, Rule.WORK_TIMEOUT: 1}


def _spoil(database: Database, process_id: str, name: str, field: str, value: object) -> str:
    """Have another program write that into the first of its records there; its id."""
    one = {"q": {"_id": {"$regex": f"^{process_id}"}}, "u": {"$set": {field: value}}}
    done = database.store.database.command("update", name, updates=[one], bypassDocumentValidation=True)
    assert done["nModified"] == 1
    return process_id


def test_no_mongodb() -> None:
    with pytest.raises(ServerUnavailable, match="does not answer"):
        sweep(Settings(mongo_uri="mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100"))


@pytest.mark.soak
def test_no_trace_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Database, settings: Settings
) -> None:
    """Its own session, quiet and gone: in a process of its own, since Spark's is one per process."""
    database.add(work_timeout)
    monkeypatch.chdir(tmp_path)
    script = (
        "import json, os, psutil; from recovery.settings import load; from recovery.sweep import sweep;"
        "print(json.dumps([sweep(load()).suspects, [c.name() for c in psutil.Process().children(recursive=True)]]));"
        "print(sweep(load()).suspects)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **settings.environment(), "RECOVERY_SPARK_MASTER": "local[1]"},
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    )
    first, second = run.stdout.splitlines()
    assert json.loads(first) == [1, []]
    assert second == "1"
    assert run.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_of_what_java_says_the_reason_is_told() -> None:
    reason = "java.lang.IllegalArgumentException: requirement failed: A secret key must be specified"
    frames = "".join(f"\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:{line})\n" for line in range(50))
    assert without_frames(f"ERROR SparkContext\n{reason}\n{frames}\t... 12 more\n") == f"ERROR SparkContext\n{reason}"


def test_a_spark_that_does_not_start(settings: Settings) -> None:
    """In a process of its own, as above."""
    script = "from recovery.settings import load; from recovery.sweep import sweep; sweep(load())"
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **settings.environment(), "RECOVERY_SPARK_MEMORY": "1k"},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert SparkUnavailable.__name__ in run.stderr and "RECOVERY_SPARK_MEMORY=1k" in run.stderr
