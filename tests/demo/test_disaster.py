"""A disaster under live processes: one operation brings every one of them to its end, and what nobody can bring back is
told exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.demo.audit import Audit
from recovery.demo.disaster import Destroyed
from recovery.demo.ledger import Line
from recovery.demo.workload import Run
from recovery.records import ProcessState
from recovery.wfformat import example_path, load
from tests.cli import schemas
from tests.cli.command import recovery

SOAK = pytest.mark.soak


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("disaster", "processes", "more"),
    [
        ("mixed", 30, ["--kill-half-way"]),
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
    assert found["kills"] == (0 if not more else 3 if "--spark" in more else 2)
    if "--spark" in more:
        assert "the driver, killed with its Spark" in done.stderr
    assert "operation 1 is finished" in done.stderr


def ran(process_id: str, state: ProcessState, error: str | None = None) -> Run:
    return Run(process_id, load(example_path()), state, error)


def test_only_what_lost_a_record_is_beyond_recovery() -> None:
    gone = Destroyed("some", processes={"p1"}, harmed={"p1", "p2", "p3"})
    assert gone.unrecoverable(ran("p1", ProcessState.RUNNING)) == "its Process record is gone"
    assert gone.unrecoverable(ran("p2", ProcessState.BROKEN, "RecordsLost: x")) == "RecordsLost: x"
    assert gone.unrecoverable(ran("p3", ProcessState.RUNNING)) is None, "it has to end"
    assert gone.unrecoverable(ran("p4", ProcessState.BROKEN, "RecordsLost: x")) is None, "nothing of it was destroyed"


def test_what_was_destroyed_is_run_again_and_nothing_else() -> None:
    """Of a result that is gone another one is accepted; any other that is lost or accepted twice is told."""
    gone = Destroyed("some", harmed={"p1"}, decisions={("p1", "t1")})
    lines = [Line("p1", task, name, "n", {}) for task, name in (("t1", "pick"), ("t2", "pack"))]
    found = Audit(
        2, lost={("p1", "pick"): "x", ("p2", "pick"): "y"}, accepted_twice={("p1", "pick"): "x", ("p1", "pack"): "y"}
    )
    told = gone.told_by(found, lines, {"p2"})
    assert (told.lost, told.accepted_twice) == ({}, {("p1", "pack"): "y"})
    assert gone.told_by(found, lines, set()).lost == {("p2", "pick"): "y"}
