"""Notes of scans: seldom, with what was done in between, and lost without harm."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from recovery import Recovery
from recovery.rules import Rule
from recovery.scan import ScanResult
from recovery.settings import Settings
from recovery.stack.ports import free_port
from recovery.store import Store
from recovery.store.views.overview import time_limit
from recovery.worker import scan_notes as notes
from recovery.worker.scan_notes import ScanNotes

DONE = ScanResult("decisions", looked_at=3, repaired=Counter({Rule.DUE: 1, Rule.WORK_TIMEOUT: 1}), seconds=0.5)


def test_what_ran_when(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(settings)
    noting = ScanNotes(store.scanners, "w:1")
    noting.add(DONE)
    noting.add(ScanResult("graphs", error="AutoReconnect: gone"))
    noted = store.scanners.all()
    run = noted["decisions"]
    assert (run.seconds, run.looked_at, run.repaired, run.worker, run.error) == (0.5, 3, 2, "w:1", None)
    assert run.ran_at is not None
    assert timedelta() <= store.now() - run.ran_at < timedelta(seconds=5)
    assert noted["graphs"].error == "AutoReconnect: gone"

    noting.add(DONE)
    noting.add(DONE)
    assert store.scanners.all() == noted, "the last note is fresh"
    monkeypatch.setattr(notes, "NOTE_EVERY", 0.0)
    noting.add(DONE)
    run = store.scanners.all()["decisions"]
    assert (run.looked_at, run.repaired) == (9, 6), "since the last note"
    noting.add(ScanResult("graphs"))
    assert store.scanners.all()["graphs"].error is None


def test_a_note_by_another_worker_is_written_over(settings: Settings) -> None:
    scanners = Store(settings).scanners
    ScanNotes(scanners, "w:1").add(DONE)
    ScanNotes(scanners, "w:2").add(ScanResult("decisions"))
    (run,) = scanners.all().values()
    assert (run.worker, run.looked_at) == ("w:2", 0)


@pytest.mark.thorough
def test_a_database_that_is_away(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    away = Recovery(settings.model_copy(update={"mongo_uri": f"mongodb://127.0.0.1:{free_port()}"}))
    noting = ScanNotes(away.resources.store.scanners, "w:1")
    with time_limit(0.2):
        noting.add(DONE)
    assert "decisions scan not noted" in caplog.text
