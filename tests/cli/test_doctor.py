"""The doctor on a cluster of real workers and a beat, well and ill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from pymongo import MongoClient
from typer.testing import CliRunner

from recovery.cli.main import app
from recovery.health.model import Cause, Check, ok, problem, warning
from recovery.queue.message import NUDGE
from recovery.settings import Settings
from recovery.stack import Stack
from recovery.stack.server_process import free_port
from recovery.store import Store, layout
from recovery.worker.beat import NUDGES_KEPT
from tests.cli.command import Done, recovery, refused
from tests.waiting import wait_until

APP = "tests.cli.shop:app"


@pytest.fixture
def env(settings: Settings) -> dict[str, str]:
    return settings.environment() | {"RECOVERY_APP": APP, "RECOVERY_SCAN_INTERVAL": "0.2"}


@pytest.fixture
def database(settings: Settings) -> Iterator[Any]:
    with MongoClient[dict[str, Any]](settings.mongo_uri) as client:
        yield client[settings.database]


def levels(done: Done) -> dict[str, str]:
    found = json.loads(done.stdout)
    return {check["name"]: check["level"] for check in found["checks"]}


def wait_well(env: dict[str, str]) -> Done:
    """What it says when it says OK of everything. A busy machine may be slow to write, or to scan, at first."""

    def well() -> Done | None:
        done = recovery("doctor", env=env)
        return done if all(line.startswith("OK ") for line in done.stdout.splitlines()) else None

    done = wait_until(well, 60, "a cluster that is well")
    assert done is not None
    return done


@pytest.mark.thorough
def test_a_cluster_that_is_well_and_then_is_not(stack: Stack, database: Any, env: dict[str, str]) -> None:
    stack.start_worker(APP, concurrency=1, env=env)
    stack.start_beat(APP, env=env)
    wait_until(lambda: database["scanners"].count_documents({}) == 5, 60, "a note of each scanner")
    well = wait_well(env)
    assert well.returncode == 0
    assert "last nudge sent" in well.stdout and "1 alive: worker-" in well.stdout
    note = database["scanners"].find_one({"_id": "decisions"})
    assert note["worker"] == database["workers"].find_one()["_id"]

    database["decisions"].drop_index("deadline")
    ill = recovery("doctor", "--json", env=env)
    assert ill.returncode == 1
    assert json.loads(ill.stdout)["level"] == "PROBLEM"
    assert {name for name, level in levels(ill).items() if level == "PROBLEM"} == {"collections"}
    assert recovery("init", env=env).returncode == 0
    wait_well(env)


def test_nothing_runs(settings: Settings, env: dict[str, str]) -> None:
    layout.create(Store(settings).database)
    done = recovery("doctor", env=env)
    assert done.returncode == 1
    assert "PROBLEM workers" in done.stdout
    assert "→ start the service that runs your workers" in done.stdout


def test_a_server_does_not_answer(env: dict[str, str]) -> None:
    away = f"redis://127.0.0.1:{free_port()}/0"
    done = recovery("doctor", "--json", env=env | {"RECOVERY_BROKER_URL": away})
    assert done.returncode == 2
    assert levels(done)["redis"] == "PROBLEM"
    assert levels(done)["replica set"] == "OK", "the rest is told"
    assert "Traceback" not in done.stderr


def test_settings_that_are_wrong(env: dict[str, str]) -> None:
    assert "did you mean RECOVERY_MONGO_URI?" in refused("doctor", env=env | {"RECOVERY_MONGO_URL": "x"})


@pytest.mark.thorough
def test_nudges_that_nobody_takes_do_not_pile_up(stack: Stack, settings: Settings, env: dict[str, str]) -> None:
    """And those that wait are taken once there is a worker, however old they are."""
    with redis.Redis.from_url(settings.broker_url) as broker:
        broker.lpush(NUDGE, *["of a beat of an older version"] * 500)
        stack.start_beat(APP, env=env)
        wait_until(lambda: broker.llen(NUDGE) == NUDGES_KEPT, 30, "the cut")
        stack.stop_workers()
        layout.create(Store(settings).database)
        found = levels(recovery("doctor", "--json", env=env))
        assert (found["beat"], found["nudges"]) == ("WARNING", "WARNING")


def test_the_status_is_shown_while_redis_does_not_answer(settings: Settings, env: dict[str, str]) -> None:
    store = Store(settings)
    layout.create(store.database)
    store.queues.polled({"add": None})
    away = env | {"RECOVERY_BROKER_URL": f"redis://127.0.0.1:{free_port()}/0"}
    done = recovery("status", "--json", env=away)
    assert done.returncode == 2, done.stderr
    found = json.loads(done.stdout)
    assert found["queues"]["add"]["depth"] is None and "processes" in found
    assert "does not answer" in found["redis_problem"]
    shown = recovery("status", env=away).stdout
    assert "does not answer" in shown and "idle: add" in shown


def test_what_is_not_asked_is_one_line(env: dict[str, str]) -> None:
    done = recovery("doctor", env=env | {"RECOVERY_MONGO_URI": f"mongodb://127.0.0.1:{free_port()}"})
    assert done.returncode == 2
    unknown = [line for line in done.stdout.splitlines() if line.startswith("UNKNOWN")]
    assert len(unknown) == 1 and unknown[0].startswith("UNKNOWN not asked    replica set, rights, concerns, writes")
    problems = [line for line in done.stdout.splitlines() if line.startswith("PROBLEM")]
    assert len(problems) == 1 and problems[0].startswith("PROBLEM mongodb")


@pytest.mark.parametrize(
    ("check", "code"),
    [
        (ok("processes", "2 running, 0 broken"), 0),
        (warning("clocks", Cause.CLOCKS_APART, "2 s", "see to them"), 0),
        (warning("processes", Cause.PROCESSES_BROKEN, "1 broken", "restart it"), 1),
        (warning("processes", Cause.BROKEN_NOT_LISTED, "1 broken", "list it"), 1),
        (problem("beat", Cause.NO_BEAT, "none", "start one"), 1),
    ],
    ids=lambda value: str(value.cause) if isinstance(value, Check) else "",
)
def test_it_ends_with_1_for_a_problem_or_a_broken_process(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, check: Check, code: int
) -> None:
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("recovery.health.examine", lambda _: iter([check]))
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == code and check.found in done.stdout
