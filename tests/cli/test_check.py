"""`recovery check`: what it prints, and what it ends with."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from recovery import Recovery
from recovery.records import Worker
from recovery.settings import Settings
from recovery.store import Store
from tests.cli import shop
from tests.cli.command import recovery, refused


@pytest.fixture
def env(emptied: Settings) -> dict[str, str]:
    return emptied.environment()


@pytest.fixture
def process_id(emptied: Settings) -> str:
    """A process whose start task is queued for a worker that lives, and whose message is not missed while this test
    runs."""
    store = Store(emptied)
    store.workers.beat(Worker(id="w", name="w", host="", pid=1, pid_started=1, queues=("twice", "double")), 600)
    app = Recovery(emptied.model_copy(update={"message_timeout": 600.0}))
    app.actors = shop.app.actors
    app.resources.store.actors.save(actor.preferences for actor in app.actors.values())
    started = app.start("twice", 3)
    app.registrar.flush()
    return started


def lose_worker(emptied: Settings, process_id: str) -> None:
    """As a worker leaves it that claimed the start task and was not heard of again."""
    store = Store(emptied)
    past = store.now() - timedelta(hours=1)
    claimed = {"state": "working", "worker": "gone#1", "recoveryTime": past}
    store.database["decisions"].update_one({"_id": f"{process_id}/start"}, {"$set": claimed})


def test_healthy(env: dict[str, str], process_id: str) -> None:
    done = recovery("check", process_id, env=env)
    assert done.returncode == 0, done.stderr
    assert f"{process_id}  twice  running" in done.stdout
    assert "1 task (1 queued); a graph" in done.stdout
    assert "start  twice  queued" in done.stdout
    assert "healthy" in done.stdout
    assert all(f"{name} scanner" in done.stdout for name in ("decisions", "graphs", "processes"))
    found = json.loads(recovery("check", process_id, "--json", env=env).stdout)
    assert found["healthy"] and found["repaired"] is None
    assert {one["scanner"] for one in found["deadlines"]} == {"decisions", "graphs", "processes"}


def test_a_finding_stays_until_it_is_repaired(emptied: Settings, env: dict[str, str], process_id: str) -> None:
    lose_worker(emptied, process_id)
    done = recovery("check", process_id, env=env)
    assert done.returncode == 1
    assert f"found      WORK_TIMEOUT  {process_id}/start  working for gone#1" in done.stdout
    assert "→ requeue" in done.stdout
    assert "healthy" not in done.stdout
    done = recovery("check", process_id, "--repair", env=env)
    assert done.returncode == 0
    assert "repaired   WORK_TIMEOUT 1" in done.stdout
    assert "healthy" in done.stdout


def test_json_of_a_repair(emptied: Settings, env: dict[str, str], process_id: str) -> None:
    lose_worker(emptied, process_id)
    found = json.loads(recovery("check", process_id, "--repair", "--json", env=env).stdout)
    (finding,) = found["findings"]
    assert (finding["rule"], finding["record"]) == ("WORK_TIMEOUT", f"{process_id}/start")
    assert (found["repaired"], found["left"], found["healthy"]) == ({"WORK_TIMEOUT": 1}, [], True)
    assert found["decisions"] == {"queued": 1}


def test_a_repair_that_breaks_the_process_says_so(emptied: Settings, env: dict[str, str], process_id: str) -> None:
    database = Store(emptied).database
    database["graphs"].update_one({"_id": process_id}, {"$set": {"links": {"start": {"start": True}}}})
    done = recovery("check", process_id, "--repair", env=env)
    assert done.returncode == 0
    assert "repaired   CYCLE 1" in done.stdout and "healthy" not in done.stdout
    assert "broken     Cycle: " in done.stdout and f"`recovery broken show {process_id}`" in done.stdout
    found = json.loads(recovery("check", process_id, "--json", env=env).stdout)
    assert found["state"] == "broken" and "start waits for start" in found["error"]


def test_what_can_only_wait_is_left(emptied: Settings, env: dict[str, str], process_id: str) -> None:
    """Nobody serves the queue."""
    store = Store(emptied)
    store.workers.remove(["w"])
    past = {"recoveryTime": store.now() - timedelta(hours=1)}
    store.database["decisions"].update_one({"_id": f"{process_id}/start"}, {"$set": past})
    done = recovery("check", process_id, "--repair", env=env)
    assert done.returncode == 1
    assert "repaired   nothing" in done.stdout
    assert "left       " in done.stdout and "→ wait" in done.stdout


def test_unknown_process(env: dict[str, str]) -> None:
    assert "no process has the id 'nothing'" in refused("check", "nothing", env=env)


def damage(emptied: Settings, process_id: str, field: str) -> None:
    update = {"q": {"_id": process_id}, "u": {"$set": {field: {"no": "value"}}}}
    Store(emptied).database.command("update", "processes", updates=[update], bypassDocumentValidation=True)


@pytest.mark.parametrize("field", ["labels", "idleTimeout"])
def test_a_process_with_a_damaged_field_is_shown_and_checked(
    emptied: Settings, env: dict[str, str], process_id: str, field: str
) -> None:
    damage(emptied, process_id, field)
    wrong = f"Process {process_id}: its {field} is an object, not "
    shown = recovery("show", process_id, env=env)
    assert shown.returncode == 0 and f"damaged    {wrong}" in shown.stdout, shown
    assert json.loads(recovery("show", process_id, "--json", env=env).stdout)["damaged"].startswith(wrong)
    done = recovery("check", process_id, "--repair", env=env)
    assert f"{process_id}  its record is damaged" in done.stdout and wrong in done.stdout
    # What nothing is lost with is dropped. Labels are a person's.
    assert (done.returncode, "repaired   RECORD_DAMAGED 1" in done.stdout) == (
        (0, True) if field != "labels" else (1, False)
    )
