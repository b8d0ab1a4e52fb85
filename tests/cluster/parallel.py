"""An application whose actors start processes by multiprocessing, and use the streams of their worker as files."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from recovery import Recovery
from tests.cluster.app import PAUSE, run_until

app = Recovery()


@app.process(worker_timeout=600)
def computes() -> list[Any]:
    """Children of each kind: what they came to."""
    with ProcessPoolExecutor(2) as pool:
        found: list[Any] = list(pool.map(abs, [-1, -2]))
    with multiprocessing.Pool(2) as workers:
        found += workers.map(abs, [-3])
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        found.append(pool.submit(abs, -4).result())
    return [*found, multiprocessing.current_process().name.partition("-")[0]]


@app.process(worker_timeout=600)
def terminates(count: int) -> list[int | None]:
    """How children ended that were told to end while they began."""
    children = [multiprocessing.Process(target=PAUSE.wait, args=(600,)) for _ in range(count)]
    for child in children:
        child.start()
        child.terminate()
        child.join(5)
    for child in children:
        child.kill()
    return sorted({child.exitcode for child in children}, key=str)


@app.process(worker_timeout=600)
def writes() -> list[str]:
    """What is left of the streams in a worker, as files."""
    subprocess.run(["echo", "by a subprocess"], stdout=sys.stdout, stderr=sys.stderr, check=True)
    sys.stdout.buffer.write(b"by bytes\n")
    faulthandler.enable()
    faulthandler.disable()
    return [sys.stdout.encoding, sys.stderr.encoding]


@cache
def executor() -> ProcessPoolExecutor:
    """One for each process of the pool, kept from task to task, and never shut down."""
    return ProcessPoolExecutor(1)


@app.process(worker_timeout=600)
def keeps_an_executor() -> list[int]:
    return [executor().submit(os.getpid).result()]


def leave_sign(folder: str) -> None:
    """A child, which leaves its pid and has a child itself, in the same folder."""
    (Path(folder) / f"child-{os.getpid()}").touch()
    run_until(folder, 600, None)


def begin(folder: str) -> None:
    grandchild = multiprocessing.Process(target=leave_sign, args=(folder,))
    grandchild.start()
    leave_sign(folder)
    grandchild.join()


@app.process(worker_timeout=600)
def has_children(folder: str) -> None:
    children = [multiprocessing.Process(target=begin, args=(folder,)) for _ in range(2)]
    for child in children:
        child.start()
    run_until(folder, 600, None)
    for child in children:
        child.join()
