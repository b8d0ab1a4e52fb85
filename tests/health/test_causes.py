"""Causes: each is explained on the page and in the schema, and made by a check."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest

from recovery.health.beat_and_scanners import SCANNERS
from recovery.health.live_workers import judge_heartbeats, judge_lost
from recovery.health.model import Cause, Level
from recovery.records import ScannerRun
from tests.cli import schemas
from tests.cli.command import ROOT
from tests.health.conftest import asked
from tests.world import World

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def test_the_page_explains_each() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \|", (ROOT / "docs" / "causes.md").read_text(), re.MULTILINE)
    assert rows == [cause.value for cause in Cause]


def test_the_schema_names_each() -> None:
    checks = json.loads(schemas.path("doctor").read_text())["properties"]["checks"]["items"]["properties"]
    assert checks["cause"]["enum"] == [cause.value for cause in Cause]
    assert checks["level"]["enum"] == [level.value for level in Level]


def test_each_is_made_by_a_check() -> None:
    sources = "\n".join(path.read_text() for path in (ROOT / "recovery" / "health").glob("*.py"))
    assert [cause.name for cause in Cause if f"Cause.{cause.name}" not in sources] == []


def test_each_is_asserted_by_a_test() -> None:
    """What watches the checks goes by the codes: none may change unseen."""
    tests = (path for path in (ROOT / "tests").rglob("*.py") if "docs" not in path.parts)
    asserted = set(re.findall(r"\bCause\.([A-Z_]+)\b", "\n".join(path.read_text() for path in tests)))
    assert [cause.name for cause in Cause if cause.name not in asserted] == []


@pytest.mark.parametrize(
    ("alive", "ago", "cause"),
    [
        ({"a"}, 30, Cause.WORKERS_LOST),
        ({"a", "b"}, 30, Cause.HEALTHY),
        ({"a"}, 130, Cause.HEALTHY),
    ],
    ids=["not back", "back", "long ago"],
)
def test_a_worker_that_was_lost_is_told_of_for_a_while(alive: set[str], ago: float, cause: Cause) -> None:
    run = ScannerRun(id="workers", lost=("b",), lost_at=NOW - timedelta(seconds=ago))
    assert judge_lost("alive", alive, run, NOW).cause is cause


def test_what_was_lost_outlasts_notes_of_scans(world: World) -> None:
    scanners = world.store.scanners
    scanners.lost(["gone"])
    scanners.note(*(ScannerRun(id=name) for name in SCANNERS), by_beat=True)
    check = asked(world, "workers")
    assert (check.level, check.cause) == (Level.WARNING, Cause.WORKERS_LOST)
    assert check.found.endswith("s ago: gone")


def test_a_worker_that_writes_no_heartbeat_and_answers_in_redis() -> None:
    assert judge_heartbeats("heartbeats", {"a@h", "b@h"}, ["a@h"]).level is Level.OK, (
        "one that does not answer is busy, or silent"
    )
    check = judge_heartbeats("heartbeats", {"a@h"}, ["a@h", "b@h"])
    assert (check.level, check.cause) == (Level.WARNING, Cause.WORKER_WITHOUT_MONGODB)
    assert check.found == "run and write no heartbeat to MongoDB: b@h"
    none = judge_heartbeats("workers", set(), ["a@h"])
    assert (none.level, none.cause) == (Level.PROBLEM, Cause.WORKER_WITHOUT_MONGODB), "nobody does the work"
