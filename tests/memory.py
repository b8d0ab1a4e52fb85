"""How much memory something takes at its peak: measured in a process of its own, which does nothing else."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

MB = 1024 * 1024


def peak_growth(step: Callable[P, Iterator[T]], *args: P.args, **kwargs: P.kwargs) -> tuple[T, int]:
    """What `step` yields last, and by how many bytes more it took at its peak than at its first yield, until which it
    prepares."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as apart:
        return apart.submit(_measure, partial(step, *args, **kwargs)).result()


def _measure(step: Callable[[], Iterator[T]]) -> tuple[T, int]:
    steps = step()
    next(steps)
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    before = _memory("VmRSS")
    done = next(steps)
    return done, _memory("VmHWM") - before


def _memory(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(name))
