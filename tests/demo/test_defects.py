"""Defects planted in a cluster while a demo runs on it: it sees them, and says so.

A demo that ends well says something only if it would not have with these.
"""

from __future__ import annotations

import io
import random
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from rich.console import Console

from recovery.demo import faults, run, trouble, workforce
from recovery.demo.demo_report import DemoReport
from recovery.demo.options import FaultKind, Options
from recovery.demo.screen import Screen
from recovery.settings import Settings

pytestmark = pytest.mark.cluster

OVERWRITING = "tests.demo.overwriting:app"
"""Named and not imported: who imports it has the defect, and all tests after this one would."""
ERASED = 0.12
"""Part of the applied decisions."""
LOOK_EVERY = 0.05


@pytest.fixture
def demo(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A demo that is run here uses the servers of the tests, and its folder is this test's."""
    monkeypatch.setenv("RECOVERY_MONGO_URI", settings.mongo_uri)
    monkeypatch.setenv("RECOVERY_BROKER_URL", settings.broker_url)
    monkeypatch.setattr(run.tempfile, "mkdtemp", lambda prefix: _made(tmp_path / f"{prefix}here"))
    return settings


def _made(path: Path) -> str:
    path.mkdir()
    return str(path)


def run_demo(options: Options) -> DemoReport:
    with Screen(Console(file=io.StringIO()), "a demo") as progress:
        return run.run(options, progress)


@contextmanager
def erasing(mongo_uri: str, seed: int) -> Iterator[list[str]]:
    """Who erases results of demos that were accepted and applied, as a backup restored in part would; which."""
    erased, seen, over, chance = list[str](), set[str](), threading.Event(), random.Random(seed)

    def erase(decisions: Any) -> None:
        # Of the start's nobody else knows the children: that process would break, which anybody sees.
        applied = {"state": "finished", "recoveryTime": None, "_id": {"$not": {"$regex": "/start$"}}}
        for found in decisions.find(applied, {"_id": True}):
            if found["_id"] not in seen and chance.random() < ERASED:
                decisions.update_one(
                    {"_id": found["_id"]}, {"$set": {"state": "waiting"}, "$unset": {"outcome": "", "children": ""}}
                )
                erased.append(found["_id"])
            seen.add(found["_id"])

    def keep_on() -> None:
        with MongoClient[dict[str, Any]](mongo_uri) as client:
            while not over.wait(LOOK_EVERY):
                for name in client.list_database_names():
                    if name.startswith("recovery_demo_"):
                        erase(client[name]["decisions"])

    eraser = threading.Thread(target=keep_on)
    eraser.start()
    try:
        yield erased
    finally:
        over.set()
        eraser.join()


def test_applied_results_that_are_erased(demo: Settings) -> None:
    seed = secrets.randbelow(2**31)
    print(f"seed {seed}")
    with erasing(demo.mongo_uri, seed) as erased:
        found = run_demo(Options(processes=6, workers=1, kill_every=0.0, time_scale=0.05, timeout=60.0))
    assert erased
    assert found.lost + found.accepted_twice > 0
    assert not found.good
    if "FINISHED_UNDECIDED" in found.repairs:
        assert any("FINISHED_UNDECIDED" in problem for problem in found.problems)


@pytest.mark.soak
@pytest.mark.usefixtures("demo")
def test_late_results_that_overwrite_accepted_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        trouble, "faults", lambda *of: {FaultKind.WORKER_FROZEN: faults.faults(*of)[FaultKind.WORKER_FROZEN]}
    )
    for module in (run, workforce):
        monkeypatch.setattr(module, "APP", OVERWRITING)
    # A process for each that ends would only make it longer: eight last until the first one frozen is awake again.
    found = run_demo(Options(processes=8, workers=2, chaos=True, kill_every=0.5, time_scale=0.2, timeout=100.0))
    assert found.faults == {"worker_frozen": found.faults["worker_frozen"]}
    assert found.accepted_twice > 0
    assert not found.good


@pytest.mark.usefixtures("demo")
def test_a_run_without_late_results_says_that_it_proved_nothing_about_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        trouble, "faults", lambda *of: {FaultKind.BEAT_KILLED: faults.faults(*of)[FaultKind.BEAT_KILLED]}
    )
    found = run_demo(Options(processes=1, workers=1, chaos=True, kill_every=60.0, time_scale=0.01, timeout=60.0))
    assert found.good
    assert found.stale_results == 0
    assert "nothing is proved about stale results" in found.notes[0]
