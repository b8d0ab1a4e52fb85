"""Told apart: no beat, one whose nudges nobody takes or somebody eats, and workers that scan by themselves."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner

from recovery.cli.main import app as command
from recovery.health import Level
from recovery.health.beat_and_scanners import SCANNERS, Nudging, judge_beat, judge_scanners
from recovery.health.model import Cause
from recovery.queue.broker import NUDGED
from recovery.queue.message import NUDGE
from recovery.records import Decision, DecisionState, ScannerRun
from recovery.worker.beat import keep_short
from tests.health.conftest import asked
from tests.store.writing import put
from tests.world import World

WITHIN, SENT_WITHIN = 5.0, 3.0
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seen", "level", "cause"),
    [
        (Nudging(sent_ago=1, taken_ago=2, scanned_ago=2, waiting=0), Level.OK, Cause.HEALTHY),
        (Nudging(sent_ago=None, taken_ago=2, scanned_ago=2, waiting=0), Level.OK, Cause.HEALTHY),
        (Nudging(sent_ago=3, taken_ago=5, scanned_ago=5, waiting=0), Level.OK, Cause.HEALTHY),
        (Nudging(sent_ago=4, taken_ago=4, scanned_ago=4, waiting=0), Level.PROBLEM, Cause.NO_BEAT),
        (Nudging(sent_ago=20, taken_ago=20, scanned_ago=9, waiting=0), Level.PROBLEM, Cause.SCANS_WITHOUT_BEAT),
        (Nudging(sent_ago=5, taken_ago=10, scanned_ago=10, waiting=8), Level.WARNING, Cause.NUDGES_NOT_TAKEN),
        (Nudging(sent_ago=6, taken_ago=6, scanned_ago=2, waiting=0), Level.PROBLEM, Cause.SCANS_WITHOUT_BEAT),
        (Nudging(sent_ago=None, taken_ago=None, scanned_ago=2, waiting=0), Level.PROBLEM, Cause.SCANS_WITHOUT_BEAT),
        (Nudging(sent_ago=16, taken_ago=16, scanned_ago=16, waiting=0), Level.PROBLEM, Cause.NO_BEAT),
        (Nudging(sent_ago=None, taken_ago=None, scanned_ago=None, waiting=0), Level.PROBLEM, Cause.NO_BEAT),
        (Nudging(sent_ago=1, taken_ago=7, scanned_ago=6, waiting=3), Level.WARNING, Cause.NUDGES_NOT_TAKEN),
        (Nudging(sent_ago=1, taken_ago=7, scanned_ago=2, waiting=0), Level.WARNING, Cause.NUDGES_LOST),
        (Nudging(sent_ago=1, taken_ago=None, scanned_ago=None, waiting=0), Level.WARNING, Cause.NUDGES_LOST),
    ],
)
def test_what_is_known_of_a_beat(seen: Nudging, level: Level, cause: Cause) -> None:
    check = judge_beat(seen, WITHIN, workers=True, sent_within=SENT_WITHIN)
    assert (check.level, check.cause) == (level, cause), check
    if cause in (Cause.NUDGES_LOST, Cause.NUDGES_NOT_TAKEN):
        assert "recovery beat" not in check.advice, "it runs"


def test_without_workers_nothing_is_said_of_a_beat() -> None:
    check = judge_beat(Nudging(1, 100, 100, 10), WITHIN, workers=False, sent_within=SENT_WITHIN)
    assert (check.level, check.cause) == (Level.WARNING, Cause.NO_WORKERS)


def test_a_beat_leaves_word_in_redis(world: World) -> None:
    broker = world.app.resources.broker
    assert broker.nudged_ago() is None
    keep_short(world.app)(sender=NUDGE)
    ago = broker.nudged_ago()
    assert ago is not None and ago < 5
    world.redis.restore(NUDGED, 0, world.redis.dump(NUDGED), replace=True, idletime=90)
    assert 90 <= (broker.nudged_ago() or 0) < 95
    assert asked(world, "beat").found.startswith("no beat nudges: last nudge sent 9")
    assert asked(world, "keys").level is Level.OK, "it is no queue's"


def forgotten(world: World, seconds: int) -> None:
    """Let the beat have nudged for the last time so long ago. Workers took what it sent."""
    world.app.resources.broker.note_nudge()
    world.redis.restore(NUDGED, 0, world.redis.dump(NUDGED), replace=True, idletime=seconds)


def test_a_forgotten_beat_is_a_problem_within_five_seconds(world: World) -> None:
    forgotten(world, 1)
    assert asked(world, "beat").level is Level.OK
    forgotten(world, 4)
    check = asked(world, "beat")
    assert (check.level, check.cause) == (Level.PROBLEM, Cause.NO_BEAT)
    assert re.match(r"no beat nudges: last nudge sent [4-9]s ago; .*; no worker scans by itself yet", check.found)
    world.store.scanners.note(ScannerRun(id="graphs"), by_beat=False)
    check = asked(world, "beat")
    assert (check.level, check.cause) == (Level.PROBLEM, Cause.SCANS_WITHOUT_BEAT)
    assert re.search(r"workers scan by themselves, the last [0-3](\.\d)?s ago", check.found), check.found
    assert "more workers" not in check.advice


def test_the_exit_code_says_that_a_beat_is_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in world.settings.environment().items():
        monkeypatch.setenv(name, value)
    forgotten(world, 4)
    done = CliRunner().invoke(command, ["doctor", "--json"])
    problems = [check["name"] for check in json.loads(done.stdout)["checks"] if check["level"] == "PROBLEM"]
    assert (done.exit_code, problems) == (1, ["beat"])


def test_what_is_overdue_without_a_beat_takes_no_more_workers(world: World) -> None:
    """Though the last scan took all of its time: those that scan by themselves find everything at once."""
    runs = {name: run(name, 7, seconds=1.9) for name in SCANNERS}
    check = judge_scanners({"decisions": 20.0}, runs, NOW, WITHIN, workers=True, no_beat=True)
    assert (check.level, check.cause) == (Level.WARNING, Cause.SCANS_WITHOUT_BEAT)
    assert "see `beat`" in check.advice and "more workers" not in check.advice
    overdue = world.store.now() - timedelta(seconds=20)
    put(world.store, Decision(id="p/start", actor="add", state=DecisionState.QUEUED, recovery_time=overdue))
    forgotten(world, 60)
    assert asked(world, "scanners").cause is Cause.SCANS_WITHOUT_BEAT


def run(name: str, ago: float = 1.0, seconds: float = 0.1, error: str | None = None) -> ScannerRun:
    return ScannerRun(id=name, ran_at=NOW - timedelta(seconds=ago), seconds=seconds, error=error)


@pytest.mark.parametrize(
    ("overdue", "runs", "level", "cause"),
    [
        (2.0, [run(name) for name in SCANNERS], Level.OK, Cause.HEALTHY),
        (20.0, [run(name, 6) for name in SCANNERS], Level.WARNING, Cause.NO_SCANS),
        (70.0, [run(name, 6) for name in SCANNERS], Level.PROBLEM, Cause.NO_SCANS),
        (20.0, [], Level.WARNING, Cause.NO_SCANS),
        (20.0, [run(name) for name in SCANNERS], Level.WARNING, Cause.RECORDS_OVERDUE),
        (20.0, [run(name, seconds=1.9) for name in SCANNERS], Level.WARNING, Cause.SCANNERS_BEHIND),
        (70.0, [run(name, seconds=1.9) for name in SCANNERS], Level.PROBLEM, Cause.SCANNERS_BEHIND),
        (2.0, [run(name, 30 if name == "graphs" else 1) for name in SCANNERS], Level.PROBLEM, Cause.SCANNERS_FAIL),
        (2.0, [run(name, 12 if name == "graphs" else 1) for name in SCANNERS], Level.OK, Cause.HEALTHY),
    ],
)
def test_what_overdue_records_mean(overdue: float, runs: list[ScannerRun], level: Level, cause: Cause) -> None:
    """More workers are advised only where those that scan have no time left."""
    check = judge_scanners({"decisions": overdue}, {one.id: one for one in runs}, NOW, WITHIN, workers=True)
    assert (check.level, check.cause) == (level, cause), check
    assert ("more workers" in check.advice) is (cause is Cause.SCANNERS_BEHIND)
