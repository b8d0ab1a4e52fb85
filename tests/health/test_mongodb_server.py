"""A replica set whose members go, or are cut off from each other: each is asked, and what is advised holds for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from recovery import Recovery
from recovery.health import Check, Level, examine, mongodb_server
from recovery.health.model import Cause
from recovery.health.mongodb_server import judge_members, replica_set
from recovery.settings import load
from recovery.stack.server_process import free_port
from recovery.stack.servers import Mongod
from recovery.store.views.server_state import SetMember, put_together
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
    alone = replica_set(resources)
    assert (alone.level, alone.found) == (Level.OK, f"primary {own_mongod.address}; 1 of 1 members take part")

    reconfigure(own_mongod, [{"votes": 0, "priority": 0}])
    one_gone = replica_set(resources)
    assert (one_gone.level, one_gone.cause) == (Level.WARNING, Cause.MEMBERS_DOWN)
    assert "1 of 2 members take part; 127.0.0.1:" in one_gone.found

    reconfigure(own_mongod, [{}, {}])

    def without_primary() -> Check | None:
        check = replica_set(resources)
        return check if check.cause is Cause.NO_PRIMARY else None

    check = wait_until(without_primary, 20, "the step-down")
    assert check is not None and check.level is Level.PROBLEM
    assert "no primary; 1 of 3 members answer, not 127.0.0.1:" in check.found
    mongodb = mongodb_server.mongodb(resources)
    assert (mongodb.cause, mongodb.asked) == (Cause.PRIMARY_UNREACHABLE, False)
    assert f"members that answer: {own_mongod.address}. An election" in mongodb.found


def test_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mongodb_server, "ANSWER_TIMEOUT", 0.3)
    resources = Recovery(load(mongo_uri=f"mongodb://127.0.0.1:{free_port()}")).resources
    checks = {check.name: check for check in examine(resources)}
    assert (checks["mongodb"].level, checks["mongodb"].cause) == (Level.PROBLEM, Cause.MONGODB_UNREACHABLE)
    assert not checks["mongodb"].asked and not checks["replica set"].asked
    assert checks["replica set"].found == "no member answers"
    assert "since mongodb did not answer" in checks["deadlines"].found
    assert (checks["deadlines"].level, checks["deadlines"].cause) == (Level.UNKNOWN, Cause.NOT_ASKED)


NAMES = ("a:1", "b:1", "c:1")
UP, DOWN = 1, 0


def status(*seen: tuple[str, int]) -> dict[str, Any]:
    """What a member says of all three: states, and whether it reaches them."""
    members = [
        {"name": name, "stateStr": state, "health": health} for name, (state, health) in zip(NAMES, seen, strict=True)
    ]
    return {"members": members, "writeMajorityCount": 2}


def asked(name: str, *seen: tuple[str, int], primary: str | None = None, elected: int = 1) -> SetMember:
    """A member that answers."""
    is_primary = primary == name
    return SetMember(
        name, answers=True, is_primary=is_primary, elected=elected if is_primary else None, names_primary=primary,
        knows=NAMES, status=status(*seen) if seen else None,
    )  # fmt: skip


def silent(name: str) -> SetMember:
    return SetMember(name, answers=False)


P, S, A, R = ("PRIMARY", UP), ("SECONDARY", UP), ("ARBITER", UP), ("RECOVERING", UP)
GONE = ("(not reachable/healthy)", DOWN)
SITUATIONS: dict[str, tuple[list[SetMember], Level, Cause, str, str]] = {
    "all well": (
        [asked("a:1", P, S, S, primary="a:1"), asked("b:1"), asked("c:1")], Level.OK, Cause.HEALTHY, "3 of 3", ""
    ),
    "a secondary that is asked names the primary": (
        [asked("b:1", P, S, S, primary="a:1"), asked("a:1", P, S, S, primary="a:1"), asked("c:1")],
        Level.OK, Cause.HEALTHY, "primary a:1", "",
    ),
    "one is down": (
        [asked("a:1", P, S, GONE, primary="a:1"), asked("b:1"), silent("c:1")],
        Level.WARNING, Cause.MEMBERS_DOWN, "c:1 can't be reached, by the primary or from here", "see whether they run",
    ),
    "one is cut off from the others": (
        [asked("a:1", P, S, GONE, primary="a:1"), asked("b:1"), asked("c:1")],
        Level.WARNING, Cause.MEMBERS_CUT_OFF, "c:1 run and are not reached by the primary", "network between them",
    ),
    "one is cut off from here": (
        [asked("a:1", P, S, S, primary="a:1"), asked("b:1"), silent("c:1")],
        Level.WARNING, Cause.MEMBERS_UNREACHABLE, "c:1 can't be reached from here", "they run",
    ),
    "one is recovering": (
        [asked("a:1", P, S, R, primary="a:1"), asked("b:1"), asked("c:1")],
        Level.WARNING, Cause.MEMBERS_RECOVERING, "c:1 (RECOVERING) take no part yet", "wait",
    ),
    "no majority bears data": (
        [asked("a:1", P, A, GONE, primary="a:1"), asked("b:1"), silent("c:1")],
        Level.PROBLEM, Cause.NO_MAJORITY, "2 are needed", "until then starts and results wait",
    ),
    "the primary is cut from all members": (
        [asked("a:1", P, GONE, GONE, primary="a:1"), asked("b:1"), asked("c:1")],
        Level.PROBLEM, Cause.NO_MAJORITY, "b:1, c:1 run and are not reached", "network between them and the primary",
    ),
    "the primary is cut off from here": (
        [silent("a:1"), asked("b:1", P, S, S, primary="a:1"), asked("c:1", P, S, S, primary="a:1")],
        Level.PROBLEM, Cause.PRIMARY_UNREACHABLE, "a:1 is the primary, as others say", "look at the network from here",
    ),
    "an election": (
        [silent("a:1"), asked("b:1", GONE, S, S), asked("c:1", GONE, S, S)],
        Level.PROBLEM, Cause.NO_PRIMARY, "no primary; 2 of 3 members answer, not a:1", "an election takes up to 12s",
    ),
    "two call themselves primary": (
        [asked("a:1", P, GONE, GONE, primary="a:1"), asked("b:1", GONE, P, S, primary="b:1", elected=2), asked("c:1")],
        Level.WARNING, Cause.MEMBERS_CUT_OFF, "primary b:1", "network between them",
    ),
    "nobody may ask": (
        [asked("a:1", primary="a:1"), asked("b:1", primary="a:1"), silent("c:1")],
        Level.WARNING, Cause.MEMBERS_NOT_SEEN, "2 of 3 members answer", "clusterMonitor",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SITUATIONS)
def test_what_members_say_of_each_other(case: str) -> None:
    members, level, cause, found, advice = SITUATIONS[case]
    check = judge_members(put_together(members))
    assert (check.level, check.cause) == (level, cause), check
    assert found in check.found and advice in check.advice, check
    assert bool(check.advice) == (level is not Level.OK)
    if cause is not Cause.MEMBERS_DOWN:
        assert "start" not in check.advice.partition(":")[0], "of what runs nobody is told to start it"
