"""`recovery workers`: each worker with its version, and what is wrong there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from recovery import Settings
from recovery.cli.main import app
from recovery.records import FailingSlots, HungSlot, Worker
from recovery.store import Store
from tests.cli import schemas


@pytest.fixture
def store(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in {**emptied.environment(), "COLUMNS": "300"}.items():
        monkeypatch.setenv(name, value)
    return Store(emptied)


def worker(name: str, **fields: Any) -> Worker:
    return Worker(id=f"{name}:1", name=name, host="boot/1", pid=7, pid_started=1, **fields)


NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def told(*options: str) -> str:
    done = CliRunner().invoke(app, ["workers", *options])
    assert done.exit_code == 0, done
    return done.stdout


@pytest.mark.usefixtures("store")
def test_there_is_none() -> None:
    assert told().startswith("no worker is registered: start the service that runs your workers")
    assert schemas.read("workers", told("--json"))["workers"] == []


def test_versions_heartbeats_queues_and_slots(store: Store) -> None:
    task = HungSlot(actor="pack", task="p/t", since=datetime.now(UTC))
    store.workers.beat(
        worker(
            "old@h1",
            application="shop",
            application_version="1.4",
            queues=("pack", "ship"),
            hung=(task,),
            started_at=NOON,
        ),
        60,
    )
    store.workers.beat(
        worker("new@h2", application="shop", application_version="1.5", queues=tuple("abcdefg"), paused=("a",)), 60
    )
    failing = FailingSlots(in_a_row=3, reason="no space left on device")
    store.workers.beat(worker("gone@h3", queues=("pack",), failing=failing), -30)
    lines = {line.split()[0]: line for line in told().splitlines()}
    missing = [
        part
        for part in ("h1  ", "shop  ", "1.4  ", "pack, ship", "2026-01-31 12:00:00 UTC", "due in ")
        if part not in lines["old@h1"]
    ]
    assert not missing, lines
    assert "1 slot hanging: pack" in lines["old@h1"]
    assert "1.5 (newest)" in lines["new@h2"]
    assert "a (paused), b, c, d, e, 2 more" in lines["new@h2"]
    assert "not recorded" in lines["gone@h3"]
    assert "overdue for 30" in lines["gone@h3"]
    assert "3 in a row could run no task: no space left on device" in lines["gone@h3"]
    assert "shop: newest version 1.5 (1); older: 1.4 (1)" in told()
    found = schemas.read("workers", told("--json"))
    assert [(one["name"], one["host"], one["alive"]) for one in found["workers"]] == [
        ("gone@h3", "h3", False),
        ("new@h2", "h2", True),
        ("old@h1", "h1", True),
    ]
    assert [(one["application_version"], one["newest"]) for one in found["versions"]] == [("1.5", True), ("1.4", False)]


def test_of_one_version_nothing_is_said_of_newest(store: Store) -> None:
    store.workers.beat(worker("one@h1", application="shop", application_version="1.4"), 60)
    assert "newest" not in told()
