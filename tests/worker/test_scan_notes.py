"""Notes of scans: seldom, with what was done in between, and lost without harm."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from recovery import Recovery
from recovery.records import ScannerRun
from recovery.rules import Rule
from recovery.scan import ScanResult
from recovery.settings import Settings
from recovery.stack.server_process import free_port
from recovery.store import Store
from recovery.store.views.overview import time_limit
from recovery.worker import scanning as notes
from recovery.worker.scanning import ScanNotes
from tests.waiting import wait_until

DONE = ScanResult("decisions", looked_at=3, repaired=Counter({Rule.DUE: 1, Rule.WORK_TIMEOUT: 1}), seconds=0.5)


def tell(noting: ScanNotes, *results: ScanResult) -> None:
    for result in results:
        noting.take(result)
    noting.tell()


def test_what_ran_when(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(settings)
    noting = ScanNotes(store.scanners, "w:1")
    tell(noting, DONE, ScanResult("graphs", error="AutoReconnect: gone"))
    noted = store.scanners.all()
    run = noted["decisions"]
    assert (run.seconds, run.looked_at, run.repaired, run.worker, run.error) == (0.5, 3, 2, "w:1", None)
    assert run.ran_at is not None
    assert timedelta() <= store.now() - run.ran_at < timedelta(seconds=5)
    assert noted["graphs"].error == "AutoReconnect: gone"

    tell(noting, DONE)
    tell(noting, DONE)
    assert store.scanners.all() == noted, "the last note is fresh"
    monkeypatch.setattr(notes, "TELL_EVERY", 0.0)
    tell(noting, DONE)
    run = store.scanners.all()["decisions"]
    assert (run.looked_at, run.repaired) == (9, 6), "since the last note"
    tell(noting, ScanResult("graphs"))
    assert store.scanners.all()["graphs"].error is None


def test_a_note_by_another_worker_is_written_over(settings: Settings) -> None:
    scanners = Store(settings).scanners
    tell(ScanNotes(scanners, "w:1"), DONE)
    tell(ScanNotes(scanners, "w:2"), ScanResult("decisions"))
    (run,) = scanners.all().values()
    assert (run.worker, run.looked_at) == ("w:2", 0)


def test_when_a_beat_nudged(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when a worker scanned by itself; and a note of a worker that never does, says nothing of it."""
    monkeypatch.setattr(notes, "TELL_EVERY", 0.0)
    scanners, noting = Store(settings).scanners, ScanNotes(Store(settings).scanners, "w:1")

    def told() -> ScannerRun:
        tell(noting, DONE)
        return scanners.all()["decisions"]

    assert (told().nudged_at, told().nudged_at) == (None, None)
    noting.by_beat = True
    nudged = told()
    assert nudged.nudged_at == nudged.ran_at is not None
    wait_until(lambda: Store(settings).now() != nudged.ran_at, 5, "the next millisecond")
    later = told()
    assert later.nudged_at == nudged.ran_at != later.ran_at
    scanners._current.update_one({}, {"$unset": {"nudgedAt": ""}})
    assert scanners.all()["decisions"].nudged_at == later.ran_at
    assert told().nudged_at == later.ran_at


@pytest.mark.thorough
def test_a_database_that_is_away(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    away = Recovery(settings.model_copy(update={"mongo_uri": f"mongodb://127.0.0.1:{free_port()}"}))
    noting = ScanNotes(away.resources.store.scanners, "w:1")
    noting.by_beat = True
    with time_limit(0.2):
        tell(noting, DONE)
    assert "decisions scan not noted" in caplog.text
    assert noting.by_beat, "it is told with the next note"
