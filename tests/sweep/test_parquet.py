"""Results written to Parquet: beside what is there, which is never touched, by whoever comes after who was cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from recovery.engine import Outbox, Resources
from recovery.operations import OperationWorker
from recovery.operations import advance as advancing
from recovery.operations.advance import advance
from recovery.operations.progress import NO_PARQUET, progress
from recovery.records import Operation, OperationState
from recovery.settings import Settings
from recovery.sweep import ask, drive_here, sums, sweep
from recovery.sweep.drive import Driver
from tests.sweep.database import Database
from tests.sweep.shapes import finished, work_timeout
from tests.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("session")]


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A folder of somebody's, with what he would not like to lose."""
    folder = tmp_path / "found"
    folder.mkdir()
    (folder / "precious.txt").write_text("kept")
    return folder


@pytest.fixture
def resources(settings: Settings, database: Database) -> Resources:
    for shape in (work_timeout, work_timeout, finished):
        database.add(shape)
    return Resources.connect(settings)


def rows(folder: Path) -> list[tuple[int, str]]:
    """As whoever looks at the folder as a whole reads them: it is one table."""
    read = SparkSession.builder.getOrCreate().read.option("pathGlobFilter", "*.parquet").parquet(str(folder))
    return sorted((row.operation, row.rule) for row in read.collect())


def now(resources: Resources, operation: Operation) -> Operation:
    found = resources.store.operations.get(operation.id)
    assert found is not None
    return found


@pytest.mark.soak
def test_beside_what_is_there(resources: Resources, settings: Settings, precious: Path) -> None:
    """Two operations in one folder, which is one table."""
    reports = [sweep(settings, parquet=str(precious)) for _ in range(2)]
    assert rows(precious) == [(report.operation, "WORK_TIMEOUT") for report in reports for _ in range(2)]
    assert (precious / "precious.txt").read_text() == "kept"
    sample = [(one.process_id, one.record) for one in reports[0].sample]
    frame = SparkSession.builder.getOrCreate().read.parquet(f"{precious}/operation={reports[0].operation}")
    assert sorted((row.process, row.record) for row in frame.collect()) == sorted(sample)
    assert "operation" not in frame.columns, "it is the folder's name"
    kept = resources.store.operations.get(reports[0].operation)
    assert kept is not None and kept.parquet_written and kept.sums


def test_a_worker_that_looks_first_leaves_it_to_spark(resources: Resources, precious: Path) -> None:
    operation = ask(resources, here=True, parquet=str(precious))
    worker = OperationWorker(resources, Outbox(resources), "a worker")
    for _ in range(3):
        worker.run_once(1)
        advance(resources, now(resources, operation))
    assert now(resources, operation).cuts is None, "nothing begins before the folder is seen to"
    assert progress(resources, now(resources, operation)).errors == (NO_PARQUET,)
    drive_here(resources, operation)
    assert now(resources, operation).state is OperationState.FINISHED
    assert len(rows(precious)) == 2 and (precious / "precious.txt").read_text() == "kept"


def test_what_workers_went_on_with_is_written_by_the_next_driver(resources: Resources, precious: Path) -> None:
    """Nobody in Spark was at it for long: the ranges are done without Spark, and the plan waits for its files."""
    operation = ask(resources, here=True, parquet=str(precious))
    cluster = SparkSession.builder.getOrCreate().sparkContext
    driver = Driver(cluster, resources, "gone")
    while now(resources, operation).cuts is None:
        assert driver.step(operation.id)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(advancing, "LEFT_ALONE", advancing.LEFT_ALONE * 0)
        worker = OperationWorker(resources, Outbox(resources), "a worker")

        def done() -> bool:
            advance(resources, now(resources, operation))
            worker.run_once(1)
            there = now(resources, operation)
            return bool(there.ready) and not resources.store.operation_ranges.how_many_open(there.id, there.phase)

        wait_until(done, 20, "workers to be through")
    waiting = now(resources, operation)
    assert waiting.state is OperationState.PLANNING and not waiting.driven and waiting.is_drivers
    resources.store.operations.drive(operation.id, "gone", 0.0)
    drive_here(resources, operation)
    assert now(resources, operation).state is OperationState.FINISHED and len(rows(precious)) == 2


@pytest.mark.parametrize("whole", [False, True])
def test_what_was_cut_off_is_done_again(resources: Resources, precious: Path, whole: bool) -> None:
    """After the folder was made, before that was noted down; and in the middle of the files, or after them."""
    operation = ask(resources, here=True, parquet=str(precious))
    folder = precious / f"operation={operation.id}"
    cluster = SparkSession.builder.getOrCreate().sparkContext
    sums.check_target(cluster, resources, operation)
    driver = Driver(cluster, resources, "first")
    while not (there := now(resources, operation)).ready or resources.store.operation_ranges.how_many_open(
        there.id, there.phase
    ):
        assert driver.step(operation.id)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(resources.store.operations, "save", lambda *_: None)
        sums.save(cluster, resources, now(resources, operation))
    assert not now(resources, operation).parquet_written
    if whole:
        before = sorted(one.name for one in folder.iterdir())
    else:
        (folder / "_SUCCESS").unlink()
    driver.drive(operation.id)
    assert now(resources, operation).state is OperationState.FINISHED and len(rows(precious)) == 2
    if whole:
        assert sorted(one.name for one in folder.iterdir()) == before, "it was there already, and stays as it is"


@pytest.mark.parametrize("kind", ["results", "files", "file", "checked"])
def test_what_somebody_else_wrote_under_its_name(
    resources: Resources, settings: Settings, precious: Path, kind: str
) -> None:
    """As another cluster's operation of the same number: it stays, and this one is cancelled before it begins."""
    theirs = precious / "operation=1"
    if kind == "file":
        theirs.write_text("kept")
    else:
        theirs.mkdir()
        (theirs / "precious.txt").write_text("kept")
    if kind == "checked":
        frame = SparkSession.builder.getOrCreate().createDataFrame(
            [("operation 1 of another",)], f"{sums.CHECKED} string"
        )
        frame.write.mode("overwrite").parquet(str(theirs))
    if kind == "results":
        SparkSession.builder.getOrCreate().range(3).write.mode("overwrite").parquet(str(theirs))
    before = sorted(path.name for path in precious.rglob("*"))
    cancelled = resources.store.operations.get(sweep(settings, parquet=str(precious)).operation)
    assert cancelled is not None and cancelled.state is OperationState.CANCELLED and cancelled.cuts is None
    assert f"--parquet {precious}: can't be written: " in (cancelled.refusal or "")
    assert sorted(path.name for path in precious.rglob("*")) == before


def test_a_folder_that_can_not_be(resources: Resources, settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    cancelled = resources.store.operations.get(sweep(settings, parquet=f"{tmp_path}/file/found").operation)
    assert cancelled is not None and cancelled.state is OperationState.CANCELLED
    assert "can't be written" in (cancelled.refusal or "")
