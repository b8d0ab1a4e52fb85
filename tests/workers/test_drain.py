"""A worker that is told to end ends, whatever Celery's pool waits for."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

# In a process of its own, which ends.
WAITS = """
import sys, threading, time
from types import SimpleNamespace
from workers import drain
drain.POOL_TIMEOUT = float(sys.argv[1])
drain.rescue = lambda *_: print("rescued", flush=True)
drain.kill_descendants = lambda: None
lifeline = SimpleNamespace(stop=lambda: print("stopped", flush=True), worker=SimpleNamespace(id="w"))
nothing = SimpleNamespace(held_by=lambda *_: [])
resources = SimpleNamespace(store=SimpleNamespace(decisions=nothing), settings=SimpleNamespace(scan_batch=1))
settings = SimpleNamespace(shutdown_grace=0.2)
app = SimpleNamespace(resources=resources, settings=settings, applier=SimpleNamespace(flush=lambda: None))
drain.Repairer = lambda *_: None
one = drain.Drain(app, lifeline, SimpleNamespace(cells=list), list)
one.begin()
if sys.argv[2] == "ends":
    one.finish()
    time.sleep(1)
    print("ended by itself", flush=True)
else:
    time.sleep(60)
"""


@pytest.mark.parametrize(("pool", "told"), [("ends", "ended by itself"), ("waits", "the rest was given back")])
def test_a_pool_that_waits_for_what_nobody_tells(pool: str, told: str) -> None:
    command = [sys.executable, "-c", f"import logging; logging.basicConfig()\n{WAITS}", "0.5", pool]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    assert "stopped\nrescued" in done.stdout
    assert told in done.stdout + done.stderr
    assert time.monotonic() - began < 40
