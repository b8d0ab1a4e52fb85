"""What a command counts is not lost with it: a worker takes it up, once."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import metrics
from recovery.cli import connection
from recovery.engine import Resources
from recovery.errors import StoreUnavailable
from recovery.metrics import registry
from recovery.metrics.carried_counts import CountsTaker, carry_samples, counted, grown
from recovery.records import ErrorInfo, Sample
from recovery.settings import Settings
from recovery.store import Store, layout, schema
from recovery.store.views.metric_counts import LeftCountRecords
from tests.cli.command import recovery
from tests.world import World


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TIME_LIMIT", 30.0)
    monkeypatch.setattr(connection, "_connected", [])  # another test's, whose command did not come to its end


def requeues(actor: str) -> float:
    return metrics.REQUEUES.labels("DUE", actor)._value.get()


def ran(settings: Settings, actor: str, times: int) -> None:
    """A command that counts so much, and ends."""
    connection.begin(Resources.connect(settings))
    for _ in range(times):
        metrics.REQUEUES.labels("DUE", actor).inc()
        metrics.LAG.observe(0.7)
    connection.leave()


def test_a_worker_takes_them_up_once(settings: Settings) -> None:
    store = Store(settings)
    ran(settings, "pack", 2)
    ran(settings, "pack", 3)
    before = counted()
    assert [CountsTaker(store).take_if_due() for _ in range(2)] == [2, 0]
    found = grown(before)
    labels = (("actor", "pack"), ("reason", "DUE"))
    assert found.pop(("recovery_requeues_total", labels)) == 5
    assert found.pop(("recovery_requeue_lag_seconds_sum", ())) == pytest.approx(
        3.5, abs=0.01
    )  # after the years of other tests
    assert found.pop(("recovery_requeue_lag_seconds_bucket", (("le", "1.0"),))) == 5
    assert found == {}


def test_a_command_that_counts_nothing_leaves_nothing(settings: Settings) -> None:
    ran(settings, "pack", 0)
    assert Store(settings).database[schema.LEFT_COUNTS].count_documents({}) == 0


def test_what_is_no_counter_of_ours_is_passed_over(settings: Settings) -> None:
    """As of a newer version, or of another program."""
    store = Store(settings)
    due = {"reason": "DUE", "actor": "mixed"}
    strange = [
        Sample(name="recovery_requeues_total", labels={"reason": "DUE"}, value=1),
        Sample(name="recovery_requeues_total", labels=due, value=-1),
        Sample(name="recovery_of_tomorrow_total", labels={}, value=1),
        Sample(name="nonsense", labels={}, value=1),
        Sample(name="recovery_requeue_lag_seconds_bucket", labels={"le": "0.123"}, value=1),
        Sample(name="recovery_requeue_lag_seconds_bucket", labels={"le": "nonsense"}, value=1),
        Sample(name="recovery_requeue_lag_seconds_count", labels={}, value=1),
        Sample(name="recovery_scan_seconds_bucket", labels={"le": "1.0"}, value=1),
        Sample(name="recovery_scan_seconds_sum", labels={}, value=1),
        Sample(name="recovery_requeues_total", labels={**due, "le": "1.0"}, value=1),
        Sample(name="recovery_requeue_lag_seconds_sum", labels={}, value=-1),
    ]
    strange += [
        Sample(name="recovery_requeues_total", labels={"reason": "x", "actor": "never made"}, value=-1),
        Sample(name="recovery_attempt_seconds_bucket", labels={"actor": "never made", "le": "nonsense"}, value=1),
    ]
    before, all_before = requeues("mixed"), counted()
    store.left_counts.leave([*strange, Sample(name="recovery_requeues_total", labels=due, value=2)])
    assert CountsTaker(store).take_if_due() == 1
    assert requeues("mixed") - before == 2
    assert len(grown(all_before)) == 1
    assert not any("never made" in str(labels) for _, labels in counted()), "nor does it begin a series"


def test_what_was_left_begins_no_series_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "STRANGERS_SERIES", len(metrics.REQUEUES._metrics) + 2)
    made = [Sample(name="recovery_requeues_total", labels={"reason": "DUE", "actor": f"made up {n}"}, value=1)
            for n in range(5)]  # fmt: skip
    before = counted()
    carry_samples([*made, *made])
    assert [value for value in grown(before).values() if value] == [2, 2, 6], "the last together"


def test_a_record_that_can_not_be_read_keeps_no_other_back(settings: Settings) -> None:
    store = Store(settings)
    layout.create(store.database)
    spoilt = {"_id": "0", "at": store.now(), "samples": "nonsense"}
    store.database.command("insert", schema.LEFT_COUNTS, documents=[spoilt], bypassDocumentValidation=True)
    before = requeues("pack")
    ran(settings, "pack", 1)
    assert CountsTaker(store).take_if_due() == 1
    assert requeues("pack") - before == 2, "by the command, which is this process here, and by the worker"
    assert store.database[schema.LEFT_COUNTS].count_documents({}) == 0, "it stands before nobody any more"


def test_a_database_that_is_away(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> None:
        raise StoreUnavailable("away")

    for name in ("leave", "take"):
        monkeypatch.setattr(LeftCountRecords, name, away)
    ran(settings, "pack", 1)
    assert CountsTaker(Store(settings)).take_if_due() == 0


def test_what_an_operator_aborts_reaches_a_worker(settings: Settings) -> None:
    """The command itself, whose process has ended."""
    world = World(settings)
    world.app.process("order")(lambda: 1)
    process_id = world.start("order")
    world.store.processes.break_(process_id, 0, ErrorInfo(kind="ValueError", message="a test"))
    ended = recovery("broken", "abort", process_id, "--reason", "a test", env=settings.environment())
    assert ended.returncode == 0, ended.stderr
    before = counted()
    assert CountsTaker(world.store).take_if_due() == 1
    assert grown(before)["recovery_processes_ended_total", (("state", "aborted"), ("type", "order"))] == 1
