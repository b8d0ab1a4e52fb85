"""Causes: each is explained on the page and in the schema, and made by a check."""

from __future__ import annotations

import json
import re

from recovery.health.model import Cause, Level
from recovery.health.workers import judge_heartbeats
from tests.cli import schemas
from tests.cli.command import ROOT


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


def test_a_worker_that_writes_no_heartbeat_and_answers_in_redis() -> None:
    assert judge_heartbeats({"a@h", "b@h"}, ["a@h"]).level is Level.OK, "one that does not answer is busy, or silent"
    check = judge_heartbeats({"a@h"}, ["a@h", "b@h"])
    assert (check.level, check.cause) == (Level.WARNING, Cause.WORKER_WITHOUT_MONGODB)
    assert check.found == "run and write no heartbeat to MongoDB: b@h"
