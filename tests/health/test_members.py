"""A replica set whose members go, one after the other: a real one, of which one member alone was ever there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from recovery import Recovery
from recovery.health import Check, Level, examine, servers
from recovery.settings import load
from recovery.stack.mongod import Mongod
from recovery.stack.ports import free_port
from recovery.store.views import condition
from tests.waiting import wait_until


@pytest.fixture
def own_mongod(tmp_path: Path) -> Iterator[Mongod]:
    server = Mongod(tmp_path / "data", tmp_path / "log")
    server.start()
    yield server
    server.kill()  # a member without a majority takes its time to end


def reconfigure(server: Mongod, others: list[dict[str, Any]]) -> None:
    """Give the set these members beside the one that runs. Without a majority that member soon steps down."""
    with MongoClient[dict[str, Any]](server.address, directConnection=True) as client:
        config = client.admin.command("replSetGetConfig")["config"]
        config["version"] += 1
        config["settings"]["electionTimeoutMillis"] = 500
        config["settings"]["heartbeatIntervalMillis"] = 200
        gone = [{"_id": n + 1, "host": f"127.0.0.1:{free_port()}", **other} for n, other in enumerate(others)]
        config["members"] = [config["members"][0], *gone]
        client.admin.command("replSetReconfig", config, force=True)


def test_members_that_go(own_mongod: Mongod) -> None:
    resources = Recovery(load(mongo_uri=own_mongod.uri, broker_url=f"redis://127.0.0.1:{free_port()}/0")).resources
    alone = servers.replica_set(resources)
    assert (alone.level, alone.found) == (Level.OK, f"primary {own_mongod.address}; 1 of 1 members up")

    reconfigure(own_mongod, [{"votes": 0, "priority": 0}])
    one_gone = servers.replica_set(resources)
    assert one_gone.level is Level.WARNING
    assert "1 of 2 members up, down: 127.0.0.1:" in one_gone.found

    reconfigure(own_mongod, [{}, {}])

    def without_primary() -> Check | None:
        check = servers.replica_set(resources)
        return check if "no primary" in check.found else None

    check = wait_until(without_primary, 20, "the step-down")
    assert check is not None and check.level is Level.PROBLEM
    assert "1 of 3 members up" in check.found


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "ANSWER_TIMEOUT", 0.3)
    resources = Recovery(load(mongo_uri=f"mongodb://127.0.0.1:{free_port()}")).resources
    checks = {check.name: check for check in examine(resources)}
    assert not checks["mongodb"].asked and not checks["replica set"].asked
    assert checks["replica set"].found == "no member answers"
    assert "since mongodb did not answer" in checks["deadlines"].found


def member(name: str, state: str, health: int = 1) -> dict[str, Any]:
    return {"name": name, "stateStr": state, "health": health}


@pytest.mark.parametrize(
    ("members", "majority", "level", "said"),
    [
        ([("a", "PRIMARY"), ("b", "SECONDARY"), ("c", "SECONDARY")], 2, Level.OK, "primary a; 3 of 3"),
        ([("a", "PRIMARY"), ("b", "SECONDARY"), ("c", "RECOVERING")], 2, Level.WARNING, "down: c (RECOVERING)"),
        ([("a", "PRIMARY"), ("b", "ARBITER"), ("c", "DOWN")], 2, Level.PROBLEM, "2 are needed"),
        ([("a", "SECONDARY"), ("b", "SECONDARY")], 2, Level.PROBLEM, "no primary"),
    ],
)
def test_what_states_mean(members: list[tuple[str, str]], majority: int, level: Level, said: str) -> None:
    """An arbiter votes, and acknowledges nothing."""
    status = {"members": [member(*one) for one in members], "writeMajorityCount": majority}
    check = servers.judge_members(condition.read_members(status))
    assert check.level is level
    assert said in check.found


def test_members_that_nobody_may_see() -> None:
    assert servers.judge_members(None).level is Level.WARNING
