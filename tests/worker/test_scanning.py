"""One nudge makes all scanners run, in turns, until none has more to do."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery

from recovery.records import DecisionState
from recovery.settings import Settings
from recovery.store import layout
from recovery.store.views.scanner_queries import Due
from recovery.worker import scanning as nudges
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.queue_consumption import QueueConsumption
from recovery.worker.scanning import Scanning
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.scan.making import overdue, start_of
from tests.waiting import wait_until
from tests.world import World


@pytest.mark.parametrize("fails", [False, True])
def test_a_storm_lets_the_other_scanners_have_their_turn(
    emptied: Settings, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    world = World(emptied, scan_batch=10, message_timeout=300.0, heartbeat_timeout=60.0)
    layout.create(world.store.database)
    celery: Any = Celery(set_as_current=False)
    lifeline = Lifeline(world.app, identify("one", ()), QueueConsumption(SimpleNamespace(app=celery), ()))
    overdue(world, DecisionState.WORKING, 35)
    monkeypatch.setattr(nudges, "TURN", 0.0)
    scanning = Scanning(world.app, lifeline)
    order: list[tuple[str, int]] = []
    for scanner in scanning._scanners:
        run = scanner.run_once

        def run_once(seconds: float, name: str = scanner.name, run: Any = run) -> Any:
            result = run(seconds)
            order.append((name, result.looked_at))
            if fails and name == "graphs":
                raise RuntimeError("a bug")
            return result

        monkeypatch.setattr(scanner, "run_once", run_once)
    scanning.start()
    try:
        scanning.nudge()
        wait_until(lambda: ("decisions", 0) in order, 10, "a run that finds no more")
        wait_until(lambda: not scanning.busy, 10, "the last scanner's turn")
    finally:
        scanning.stop()
    assert world.store.database["decisions"].count_documents({"state": "queued"}) == 35
    # The last page had been read ahead: what there was after it, the next run asks.
    assert [looked_at for name, looked_at in order if name == "decisions"] == [10, 10, 10, 5, 0]
    all_of_them = ["workers", "decisions", "graphs", "processes", "schedules"]
    assert [name for name, _ in order] == all_of_them + ["workers", "decisions"] * 4, "what has nothing to do runs once"


@pytest.mark.parametrize("odd", [datetime(1, 1, 1, tzinfo=UTC), None], ids=["the first of all dates", "a bug"])
def test_whatever_is_found_by_a_look_all_is_scanned(
    emptied: Settings, monkeypatch: pytest.MonkeyPatch, odd: datetime | None
) -> None:
    """Also what another program wrote as a deadline."""
    world = World(emptied, message_timeout=300.0, heartbeat_timeout=60.0)
    layout.create(world.store.database)
    celery: Any = Celery(set_as_current=False)
    lifeline = Lifeline(world.app, identify("one", ()), QueueConsumption(SimpleNamespace(app=celery), ()))
    overdue(world, DecisionState.WORKING, 2)
    decisions = world.store.database["decisions"]
    if odd is None:
        monkeypatch.setattr(Due, "look", lambda *_: 1 / 0)
    else:
        decisions.update_one({"_id": start_of(0)}, {"$set": {"recoveryTime": odd}})
    scanning = Scanning(world.app, lifeline)
    scanning.start()
    try:
        for _ in range(2):
            scanning.nudge()
            wait_until(lambda: decisions.count_documents({"state": "queued"}) == 2, 10, "both to be requeued")
            wait_until(lambda: not scanning.busy, 10, "the last scanner's turn")
            claim = {"state": "working", "recoveryTime": odd or world.store.now(), "worker": "w", "timeouts": 0}
            decisions.update_many({}, {"$set": claim})
    finally:
        scanning.stop()
