"""A disaster under live processes: one operation brings every one of them to its end, and what nobody can bring back is
told exactly."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from recovery.demo.audit import COLLECT, Audit
from recovery.demo.disaster import FEW, Destroyed
from recovery.demo.ledger import Line
from recovery.records import Decision, DecisionState, ProcessState
from recovery.settings import Settings
from recovery.store import Store, layout, schema
from recovery.wfformat import example_path, load
from recovery.wfformat.workload import Run
from tests.cli import schemas
from tests.cli.command import recovery
from tests.store.writing import put

SOAK = pytest.mark.soak


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("disaster", "processes", "more"),
    [
        pytest.param("mixed", 30, ["--kill-half-way"], marks=SOAK),
        pytest.param("redis", 300, ["--kill-half-way"], marks=SOAK),
        pytest.param("graph", 300, ["--kill-half-way"], marks=SOAK),
        pytest.param("mixed", 300, [], marks=SOAK),
        pytest.param("mixed", 300, ["--kill-half-way", "--spark"], marks=[SOAK, pytest.mark.spark]),
    ],
)
def test_every_process_comes_to_its_end(tmp_path: Path, disaster: str, processes: int, more: list[str]) -> None:
    options = ("--disaster", disaster, "--processes", str(processes), "--timeout", "150", "--json", *more)
    done = recovery("demo", *options, env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    found = schemas.read("demo", done.stdout)
    assert (found["lost"], found["accepted_twice"], found["problems"]) == (0, 0, [])
    assert found["finished"] + len(found["unrecoverable"]) == found["processes"] == processes
    gone = sum("Process record" in why for why in found["unrecoverable"].values())
    assert gone == (round(processes / 10) if disaster == "mixed" else 0)
    assert found["broken"] == len(found["unrecoverable"]) - gone
    killed = found["killed_half_way"]
    assert (killed is not None) == bool(more)
    if killed is not None:
        # So few that they are repaired between two looks are not waited for.
        assert killed["phase"] == "apply" and killed["done"] <= killed["of"]
        assert killed["of"] < FEW or killed["done"] >= killed["of"] / 2, killed
        # Of few processes scanners may have repaired most by then.
        many = disaster != "redis" and processes >= 300
        assert not many or killed["of"] >= FEW, "it was the operation that repaired it"
    assert found["kills"] == (0 if not more else 3 if "--spark" in more else 2)
    if "--spark" in more:
        assert "the driver, killed with its Spark" in done.stderr
    assert "operation 1 is finished" in done.stderr


def ran(process_id: str, state: ProcessState, error: str | None = None) -> Run:
    return Run(process_id, load(example_path()), state, error)


def test_only_what_lost_a_record_is_beyond_recovery() -> None:
    gone = Destroyed("some", processes={"p1"}, starts={"p2", "p3"}, decisions={("p2", "start"), ("p4", "t1")})
    lost = "what its start scheduled is gone: RecordsLost: x"
    assert gone.unrecoverable(ran("p1", ProcessState.RUNNING)) == "its Process record is gone"
    assert gone.unrecoverable(ran("p2", ProcessState.BROKEN, "RecordsLost: x")) == lost
    assert gone.unrecoverable(ran("p3", ProcessState.RUNNING)) is None, "it has to end"
    assert gone.unrecoverable(ran("p4", ProcessState.BROKEN, "RecordsLost: x")) is None, "its start has all of it"


def test_what_was_destroyed_is_run_again_and_nothing_else() -> None:
    """Of a result that is gone another one is accepted; any other that is lost or accepted twice is told."""
    gone = Destroyed("some", decisions={("p1", "t1")})
    lines = [Line("p1", task, name, "n", {}) for task, name in (("t1", "pick"), ("t2", "pack"))]
    found = Audit(
        2, lost={("p1", "pick"): "x", ("p2", "pick"): "y"}, accepted_twice={("p1", "pick"): "x", ("p1", "pack"): "y"}
    )
    told = gone.told_by(found, lines, {"p2"})
    assert (told.lost, told.accepted_twice) == ({}, {("p1", "pack"): "y"})
    assert gone.told_by(found, lines, set()).lost == {("p2", "pick"): "y"}


def test_what_broke_and_could_have_been_brought_back_is_lost() -> None:
    """Whatever recovery says that it broke for: what is gone says whether it had to."""
    gone = Destroyed("some", starts={"p1"}, decisions={("p1", "start"), ("p2", "t1")})
    runs = [ran(one, ProcessState.BROKEN, "RecordsLost: x") for one in ("p1", "p2")]
    told = gone.told_by(Audit(0), [], {"p1"}, runs)
    assert told.lost == {("p2", COLLECT): "its process is broken, and could be brought back: RecordsLost: x"}


def test_a_start_that_was_at_work_is_no_start_that_had_ended(settings: Settings) -> None:
    """The one is run again, the other can't be."""
    store = Store(settings)
    layout.create(store.database)
    for number in range(20):
        state = DecisionState.FINISHED if number % 2 else DecisionState.WORKING
        put(store, Decision(id=f"p{number}/start", actor="a", state=state, recovery_time=store.now()))
    removed = store.destruction.remove_some(0.5, random.Random(3))
    gone = {*removed.ids[schema.DECISIONS]}
    assert len(gone) == 10 and store.database[schema.DECISIONS].count_documents({}) == 10
    assert removed.finished == {one for one in gone if int(one[1 : one.index("/")]) % 2}
    assert 0 < len(removed.finished) < 10
