"""A worker that is told to end ends, whatever Celery's pool waits for; and what it gives back has not ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import psutil
import pytest

from recovery.errors import StoreUnavailable
from recovery.scan import rescue
from recovery.settings import Settings
from recovery.worker import celery_tasks as tasks
from recovery.worker import drain
from recovery.worker.celery_tasks import Running, WorkerParts
from recovery.worker.drain import Drain
from recovery.worker.messages.stale import StaleMessages
from recovery.worker.slots.board import HUNG, ThreadBoard
from recovery.worker.slots.fitness import Fitness
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.living import lives
from tests.waiting import wait_until
from tests.world import World, arguments

# In a process of its own, which ends.
WAITS = """
import os, sys, threading, time
from types import SimpleNamespace
from recovery.worker import drain
drain.POOL_TIMEOUT = float(sys.argv[1])
drain.rescue = lambda *_: print("rescued", flush=True)
lifeline = SimpleNamespace(stop=lambda: print("stopped", flush=True), worker=SimpleNamespace(id="w"))
def none_held(*_):
    # By force, and the main thread ends meanwhile.
    if runs is not None and threading.current_thread().name == "drain":
        threading.main_thread().join(30)
    return []
nothing = SimpleNamespace(held_by=none_held)
resources = SimpleNamespace(store=SimpleNamespace(decisions=nothing), settings=SimpleNamespace(scan_batch=1))
settings = SimpleNamespace(shutdown_grace=60 if sys.argv[2] == "is quick" else 0.2)
app = SimpleNamespace(resources=resources, settings=settings, outbox=SimpleNamespace(flush=lambda: None))
drain.Repairer = lambda *_: None
closed = threading.Event()
runs = {"ends meanwhile": [SimpleNamespace(pid=os.getpid())], "is quick": [SimpleNamespace(pid=1)]}.get(sys.argv[2])
told = lambda: print("takes no more", flush=True)
board = SimpleNamespace(cells=lambda: runs or [], close=closed.set, take_no_more=told)
one = drain.Drain(app, lifeline, board, list)
one.begin()
if sys.argv[2] == "is quick":
    sys.exit(5)
if runs:
    closed.wait()
    runs.clear()
    one.finish()
    sys.exit(5)
if sys.argv[2] == "ends":
    one.finish()
    time.sleep(1)
    print("ended by itself", flush=True)
else:
    time.sleep(60)
"""


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("pool", "told"),
    [
        ("ends", "ended by itself"),
        ("waits", "unfinished tasks were given back"),
        ("ends meanwhile", "unfinished tasks were given back"),
        ("is quick", "unfinished tasks were given back"),
    ],
)
def test_a_pool_that_waits_for_what_nobody_tells(pool: str, told: str) -> None:
    command = [sys.executable, "-c", f"import logging; logging.basicConfig()\n{WAITS}", "0.5", pool]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("takes no more\n")
    assert "stopped\nrescued" in done.stdout
    assert told in done.stdout + done.stderr
    assert time.monotonic() - began < 40


def test_a_worker_whose_clock_could_not_be_started_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    start, forced, refused = threading.Thread.start, threading.Event(), list[str]()

    def refuse_once(thread: threading.Thread) -> None:
        if thread.name == "drain" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    monkeypatch.setattr(Drain, "_force", lambda _: forced.set())
    nothing: Any = SimpleNamespace(take_no_more=lambda: None)
    one = Drain(nothing, nothing, nothing, list)
    one.begin()
    assert refused and not forced.is_set()
    one.begin()
    assert forced.wait(10)


def starts(folder: Path) -> subprocess.Popen[bytes]:
    child = subprocess.Popen(["sleep", "600"])
    (folder / "new").write_text(str(child.pid))
    (folder / "new").rename(folder / "pid")
    return child


def stands(pid: int) -> bool:
    return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)


def waits(folder: Path) -> None:
    """As `subprocess.run(check=True)` does."""
    child = starts(folder)
    if code := child.wait():
        raise subprocess.CalledProcessError(code, child.args)


def fails(folder: Path) -> None:
    child = starts(folder)
    wait_until(lambda: stands(child.pid), 20, "somebody to touch it")
    raise TimeoutError("no answer")


def takes_it_for_an_answer(folder: Path) -> str:
    child = starts(folder)
    wait_until(lambda: stands(child.pid), 20, "somebody to touch it")
    return "nothing found"


TOO_EARLY = 98
"""Exit code of a worker that killed a subprocess before the claim was given back."""


class Ending:
    """A worker of one thread, to be forked from here, which is told to end while it runs an actor that waits for a
    subprocess. It gives nothing back before its thread has come back from the actor, unless that goes on waiting."""

    def __init__(
        self, world: World, folder: Path, function: Callable[[Path], Any], first: Exception | None, **settings: Any
    ) -> None:
        self.world, self.folder, self.function, self.first = world, folder, function, first
        self.app = world.app
        self.app.process("asks", worker_timeout=600, **settings)(lambda: function(folder))
        world.tell()
        self.process_id = world.start("asks")

    def run(self) -> None:
        """In the fork, and its end."""
        message = self.world.pop(["asks"])
        assert message is not None
        lifeline: Any = SimpleNamespace(stop=lambda: None, worker=SimpleNamespace(id="w", queues=("asks",)))
        board, stale = ThreadBoard(lambda: 1), StaleMessages(self.app)
        Running.parts = WorkerParts(lifeline, stale, board, Fitness())
        attempt = tasks._attempt(self.app, self.app.actors["asks"])
        self.thread = threading.Thread(target=attempt, args=arguments(message))
        self.thread.start()
        wait_until((self.folder / "pid").exists, 20, "the subprocess")
        # All that giving back asks the database for, and the last step of an end.
        with patch.object(self.app.outbox, "flush", self.flush), patch.object(drain, "rescue", self.rescue):
            Drain(self.app, lifeline, board, list).begin_hung(lambda: 0)
            threading.Event().wait(60)

    def flush(self) -> None:
        wait_until(self.seen, 20, "the thread to see what it can")
        if self.function is waits and not self.thread.is_alive():
            os._exit(TOO_EARLY)
        if self.first is not None:
            raise self.first

    def seen(self) -> bool:
        with suppress(psutil.NoSuchProcess):
            if self.function is waits and psutil.Process(self.child()).status() == psutil.STATUS_STOPPED:
                return True
        return not self.thread.is_alive()

    def child(self) -> int:
        return int((self.folder / "pid").read_text())

    def rescue(self, *args: Any) -> None:
        if isinstance(self.first, StoreUnavailable):
            raise self.first
        rescue(*args)


AWAY, DAMAGED = StoreUnavailable("away"), RuntimeError("of no server")


@pytest.mark.parametrize(
    ("function", "first", "state"),
    [
        pytest.param(waits, None, "queued", id="waits"),
        pytest.param(fails, None, "queued", id="fails"),
        pytest.param(takes_it_for_an_answer, None, "queued", id="takes it for an answer"),
        pytest.param(fails, AWAY, "working", id="fails, with the database away"),
        pytest.param(takes_it_for_an_answer, AWAY, "working", id="takes it for an answer, with the database away"),
        pytest.param(waits, DAMAGED, "queued", id="waits, beside damaged records"),
    ],
)
def test_what_is_given_back_has_not_ended(
    emptied: Settings, tmp_path: Path, function: Callable[[Path], Any], first: Exception | None, state: str
) -> None:
    """Its subprocess is stopped and killed: what it comes to for that is no end, be it an error or a value."""
    ending = Ending(World(emptied, shutdown_grace=0.0), tmp_path, function, first)
    if (worker := os.fork()) == 0:
        try:
            ending.run()
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == HUNG
    (decision,) = ending.world.decisions(ending.process_id).values()
    assert (decision.state, decision.outcome, decision.timeouts) == (state, None, 0)
    assert ending.world.process(ending.process_id).state == "running"
    wait_until(lambda: not lives(ending.child()), 10, "the end of its subprocess")


def test_what_is_not_idempotent_is_not_done_again_for_a_deployment(emptied: Settings, tmp_path: Path) -> None:
    """It was cut off in the middle: nobody knows how far it had come."""
    ending = Ending(World(emptied, shutdown_grace=0.0), tmp_path, waits, None, idempotent=False)
    if (worker := os.fork()) == 0:
        try:
            ending.run()
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) == HUNG
    (decision,) = ending.world.decisions(ending.process_id).values()
    assert decision.state == "finished", "somebody else takes it"
    assert decision.outcome is not None and decision.outcome.error is not None
    error = decision.outcome.error
    assert (error.kind, error.message) == ("WorkTimeout", "asks lost its worker, and it is not idempotent")
