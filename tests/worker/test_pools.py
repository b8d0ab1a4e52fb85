"""The memory of pools, and how many processes they have."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

import pytest
from billiard import heap

from recovery.settings import Settings
from recovery.worker.celery_config import configuration
from recovery.worker.slots import pools
from tests.cli.command import environment


def test_a_pool_shares_memory_without_a_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may be full, or not writable, when a process is replaced."""

    def none(*_: object, **__: object) -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkstemp", none)
    monkeypatch.setattr(tempfile, "mkdtemp", none)
    monkeypatch.setattr(heap, "Arena", heap.Arena)
    pools.share_no_files()
    monkeypatch.setattr(heap.BufferWrapper, "_heap", heap.Heap())
    memory = heap.BufferWrapper(100_000).create_memoryview()
    if not (pid := os.fork()):
        memory[0] = 7
        os._exit(0)
    os.waitpid(pid, 0)
    assert memory[0] == 7


def test_as_many_processes_as_cpus_that_may_be_used() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
    code += "from recovery.settings import load; from recovery.worker.celery_config import configuration\n"
    code += "print(configuration(load(), [])['worker_concurrency'])"
    run = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert run.stdout == "1\n"


def test_all_cpus_by_default(settings: Settings) -> None:
    assert configuration(settings, [])["worker_concurrency"] == len(os.sched_getaffinity(0))
