"""In whose name slots claim: no two of them, in any process or thread, in the same."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from types import SimpleNamespace

import pytest

from recovery import Recovery
from recovery.records.ids import HOLDER_END, holder
from recovery.settings import Settings
from recovery.worker import celery_tasks as tasks
from recovery.worker.celery_tasks import Running
from recovery.worker.slots.fitness import Fitness


def test_each_thread_claims_in_its_own_name(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process of a pool runs one at a time, in its main thread."""
    lifeline = SimpleNamespace(worker=SimpleNamespace(id="w", queues=()))
    monkeypatch.setattr(
        Running, "parts", SimpleNamespace(lifeline=lifeline, board=SimpleNamespace(), fitness=Fitness())
    )
    names: list[str] = []
    monkeypatch.setattr(tasks, "Slot", lambda *given: names.append(given[3]))
    app, both = Recovery(settings), Barrier(2)

    def thread(_: int) -> None:
        both.wait(10)
        tasks._slot(app)

    tasks._slot(app)
    process = holder("w", os.getpid())
    assert names == [process]
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(thread, range(2)))
    assert len(set(names)) == 3
    assert all(process <= name < process + HOLDER_END for name in names)
