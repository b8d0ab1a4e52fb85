"""The sweep that beat orders, end to end: the worker and the sweep that are deployed, a beat, real Spark, a defect that
no deadline brings up. And what is told where a worker has served Spark and none does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery import Recovery, Settings
from recovery.health import Level
from recovery.health.model import Cause
from recovery.metrics.answers import spark_workers
from recovery.records import Worker
from recovery.stack.child import ChildProcess
from recovery.sweep import SCHEDULED
from tests.cli.command import ROOT, command, environment
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.health.conftest import asked, well
from tests.waiting import wait_until
from tests.world import World

CHECK, WHY = "spark", "every sweep_interval"
SHOP = """
from recovery import Recovery

app = Recovery()


@app.process(retry=None)
def order(item):
    raise ValueError("no such item")
"""


@pytest.fixture
def world(emptied: Settings) -> World:
    return well(emptied)


@pytest.fixture
def deployed(settings: Settings, tmp_path: Path) -> Iterator[dict[str, ChildProcess]]:
    """What compose starts: by its commands, in the folder of an application."""
    (tmp_path / "shop.py").write_text(SHOP)
    # Sweeps follow one another, since nobody can wait for a day.
    swept = settings.model_copy(update={"sweep_interval": 2.0, "spark_master": "local[1]", "app": "shop:app"})
    env = environment(swept.environment() | {"PYSPARK_PYTHON": sys.executable}) | {"PYTHONPATH": str(ROOT)}
    commands = {
        "worker": [sys.executable, "-m", "workers.app", "--concurrency", "1"],
        "sweep": [sys.executable, "-m", "workers.sweep"],
        "beat": command("beat"),
    }
    children = {
        name: ChildProcess(name, line, tmp_path / f"{name}.log", env=env, cwd=tmp_path)
        for name, line in commands.items()
    }
    yield children
    for child in children.values():
        child.kill_group()


@pytest.mark.cluster
@pytest.mark.spark
def test_beat_orders_spark_runs_and_defects_are_repaired(settings: Settings, deployed: dict[str, ChildProcess]) -> None:
    app = Recovery(settings)

    @app.process()
    def order(item: str) -> str:
        return item

    process_id = app.start(order, "ring")
    store = app.resources.store
    interruptions, operations = store.database["interruptions"], store.database["operations"]

    def holds(condition: object) -> bool:
        for name, child in deployed.items():
            assert child.running, f"{name}: " + "\n".join(child.last_lines(20))
        return bool(condition)

    wait_until(lambda: holds(interruptions.count_documents({})), 60, "the process is broken")
    # The census of what is broken goes by this record, and no record of the process is overdue.
    interruptions.delete_many({})
    wait_until(lambda: holds(interruptions.count_documents({})), 120, "it is listed again")
    [result] = store.operation_results.of_process(process_id)
    [sweep] = operations.find({"_id": result.operation})
    assert (sweep["who"], sweep["kind"], sweep["spark"], sweep["why"]) == (SCHEDULED, "repair", True, WHY)
    assert store.workers.spark_workers() == 1


def test_no_worker_has_ever_served_spark(world: World) -> None:
    check = asked(world, CHECK)
    assert (check.level, check.cause) == (Level.OK, Cause.HEALTHY)
    assert check.found.startswith("no sweep runs, since no worker has ever served Spark; to have them, start one")
    assert spark_workers(world.store) == [], "no series, so no alert"


def test_a_worker_has_served_spark_and_none_does(world: World) -> None:
    serving = Worker(id="sweep:1", name="sweep", host="", pid=1, pid_started=1, spark=True)
    world.store.workers.note_spark()
    world.store.workers.beat(serving, 60)
    check = asked(world, CHECK)
    assert (check.level, check.found) == (Level.OK, "1 worker for a sweep each 1d; none was ordered yet")
    world.store.workers.remove(["sweep:1"])
    check = asked(world, CHECK)
    assert (check.level, check.cause) == (Level.PROBLEM, Cause.SPARK_WORKER_GONE)
    assert check.found == "a worker has served the queue spark, and none does: none was ordered yet"
    [gauge] = spark_workers(world.store)
    assert [(one.name, one.value) for one in gauge.samples] == [("recovery_spark_workers", 0)]


def test_sweeps_are_switched_off(emptied: Settings) -> None:
    world = well(emptied.model_copy(update={"sweep_interval": 0.0}))
    world.store.workers.note_spark()
    check = asked(world, CHECK)
    assert (check.level, check.found) == (Level.OK, "not needed: RECOVERY_SWEEP_INTERVAL is 0, so beat orders no sweep")
