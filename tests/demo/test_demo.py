"""The demo itself: a cluster of its own whose workers are killed, and nothing of it left behind."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from recovery.demo.options import FaultKind
from recovery.drill.sightings import Step
from recovery.rules import Rule
from recovery.settings import Settings
from tests.cli import schemas
from tests.cli.command import ROOT, command, environment, recovery
from tests.cli.terminal import CUT, in_terminal, too_wide
from tests.waiting import wait_until

SMALL = ("demo", "--processes", "4", "--time-scale", "0.05", "--timeout", "100")
SEED = 144
FIGURES = {
    "processes", "finished", "tasks", "executions", "requeued", "stale_rejected", "accepted_twice", "lost",
    "wall_seconds", "lag_p50", "lag_p99", "kills", "seed", "faults", "repairs", "live_without_deadline",
    "stale_results", "retried", "notes",
}  # fmt: skip

pytestmark = pytest.mark.cluster


def of_this(folder: Path) -> list[psutil.Process]:
    """Living processes that a demo with this folder for temporary files started: it stands in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TMPDIR", "").startswith(str(folder)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def check_drill(found: dict[str, Any]) -> None:
    """All was measured, kills included, and the ledger has it so."""
    steps = {one["step"]: one for one in found["steps"]}
    assert set(steps) == set(Step)
    assert not any(one["failed"] for one in steps.values())
    assert (found["disagreements"], found["left"]) == ([], 0)
    assert found["compared"] == sum(one["probes"] for one in steps.values()) > 30


@pytest.mark.smoke
def test_kills_and_nothing_lost(tmp_path: Path) -> None:
    """And a drill at the end, which kills as well, and agrees with the ledger."""
    done = recovery(*SMALL, "--kill-every", "1", "--seed", "3", "--drill", "--json", env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    found = schemas.read("demo", done.stdout)
    assert set(found) >= FIGURES
    assert (found["processes"], found["finished"], found["tasks"], found["seed"]) == (4, 4, 48, 3)
    assert (found["lost"], found["accepted_twice"], found["problems"]) == (0, 0, [])
    assert found["executions"] >= found["tasks"]
    assert found["kills"] >= 1
    assert "seed 3" in done.stderr
    check_drill(found["drill"])
    # Killed by then, and the last of them may be about to end.
    wait_until(lambda: of_this(tmp_path) == [], 10, "the end of all that was started")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seconds", [6, pytest.param(120, marks=pytest.mark.soak)])
def test_chaos(tmp_path: Path, seconds: int) -> None:
    """At 6 seconds some of the faults, as the seed has it: of a worker, of MongoDB and of Valkey; at 120 all."""
    options = ["--chaos", "--for", str(seconds), "--seed", str(SEED), "--kill-every", "0.5", "--json"]
    if seconds > 60:
        options.append("--drill")
    timeout = seconds + 200
    done = recovery(*SMALL, *options, env={"TMPDIR": str(tmp_path)}, timeout=timeout)
    assert done.returncode == 0, done.stderr
    found = schemas.read("demo", done.stdout)
    assert found["processes"] == found["finished"] >= 4
    assert (found["lost"], found["accepted_twice"], found["live_without_deadline"]) == (0, 0, 0)
    assert done.stderr.count("fault: ") == sum(found["faults"].values()) > 0
    assert set(found["faults"]) <= set(FaultKind)
    assert set(found["repairs"]) <= set(Rule)
    assert bool(found["notes"]) != bool(found["stale_results"]), "stale results, or that nothing is proved about them"
    if seconds > 60:
        assert set(found["faults"]) == set(FaultKind)
        assert found["stale_results"] > 0
        check_drill(found["drill"])
    # Killed by then, and the last of them may be about to end.
    wait_until(lambda: of_this(tmp_path) == [], 10, "the end of all that was started")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.soak
def test_mongodb_is_away_while_a_third_of_all_attempts_fails(tmp_path: Path) -> None:
    """All of it, for 20 seconds: no process is lost for it and nothing done twice; and the log says what was tried
    again and why, and when the breaker opened and closed."""
    options = ("--chaos", "--fault", "mongodb_away", "--fail", "0.33", "--for", "25", "--seed", str(SEED), "--keep")
    done = recovery(*SMALL, *options, "--json", env={"TMPDIR": str(tmp_path)}, timeout=300)
    assert done.returncode == 0, done.stderr
    found = schemas.read("demo", done.stdout)
    assert found["processes"] == found["finished"]
    assert (found["lost"], found["accepted_twice"], found["faults"]) == (0, 0, {"mongodb_away": 1})
    assert found["retried"] > 0
    (folder,) = tmp_path.iterdir()
    logs = "".join(log.read_text() for log in (folder / "logs").glob("worker-*.log"))
    for said in ("circuit breaker open", "circuit breaker closed", "reason NODE_NOT_AVAILABLE; retry 1 in "):
        assert said in logs


@pytest.mark.soak
def test_ten_minutes_of_chaos_while_a_third_of_all_attempts_fails(tmp_path: Path) -> None:
    options = ("--chaos", "--fail", "0.33", "--for", "600", "--seed", str(SEED), "--json")
    done = recovery(*SMALL, *options, env={"TMPDIR": str(tmp_path)}, timeout=900)
    assert done.returncode == 0, done.stderr
    found = schemas.read("demo", done.stdout)
    assert found["processes"] == found["finished"]
    assert (found["lost"], found["accepted_twice"], found["live_without_deadline"]) == (0, 0, 0)
    assert set(found["faults"]) == set(FaultKind)
    assert found["retried"] > 100


def test_without_kills_on_servers_that_run_already(settings: Settings, tmp_path: Path) -> None:
    env = {
        "RECOVERY_MONGO_URI": settings.mongo_uri,
        "RECOVERY_BROKER_URL": settings.broker_url,
        "TMPDIR": str(tmp_path),
    }
    done = recovery(*SMALL, "--kill-every", "0", env=env)
    assert done.returncode == 0, done.stderr
    assert "4 of 4" in done.stdout
    assert "nothing was lost, nothing accepted twice" in done.stdout
    assert not any(path.name.startswith("recovery-demo-") for path in tmp_path.iterdir())


def test_what_has_not_ended_in_time_is_said(settings: Settings, tmp_path: Path) -> None:
    env = {
        "RECOVERY_MONGO_URI": settings.mongo_uri,
        "RECOVERY_BROKER_URL": settings.broker_url,
        "TMPDIR": str(tmp_path),
    }
    options = ("demo", "--processes", "1", "--workers", "1", "--time-scale", "100", "--timeout", "0.5", "--json")
    done = recovery(*options, env=env)
    assert done.returncode == 1
    found = schemas.read("demo", done.stdout)
    assert (found["finished"], found["lost"], found["accepted_twice"]) == (0, 0, 0)
    assert "is still running: " in found["problems"][0]
    (kept,) = tmp_path.glob("recovery-demo-*")
    assert str(kept) in done.stderr
    assert list(kept.glob("logs/worker-1.log"))
    # Killed by then, and the last of them may be about to end.
    wait_until(lambda: of_this(tmp_path) == [], 10, "the end of all that was started")


@pytest.mark.soak
def test_in_a_terminal(tmp_path: Path) -> None:
    told = CUT.sub("", in_terminal(*SMALL, env={"TMPDIR": str(tmp_path), "TERM": "xterm"}, timeout=200))
    assert too_wide(told.replace("\r", "\n")) == [] and "stale rejected" in told


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_interrupted_it_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    env = environment({"TMPDIR": str(tmp_path)})
    arguments = command("demo", "--time-scale", "100", "--kill-every", "1")
    with subprocess.Popen(arguments, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "kills" in line and "kills 0" not in line:
                break
        wait_until(lambda: len(of_this(tmp_path)) > 5, 30, "servers and workers that are there to be left behind")
        demo.send_signal(number)
        assert demo.wait(60) == 128 + number
    wait_until(lambda: of_this(tmp_path) == [], 10, "the end of all that was started")
    assert not list(tmp_path.glob("recovery-demo-*"))


def test_killed_it_leaves_no_process(tmp_path: Path) -> None:
    env = environment({"TMPDIR": str(tmp_path)})
    arguments = command("demo", "--time-scale", "100")
    with subprocess.Popen(arguments, env=env, cwd=ROOT, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "processes" in line:
                break
        demo.kill()
    wait_until(lambda: of_this(tmp_path) == [], 10, "the end of all that was started")
