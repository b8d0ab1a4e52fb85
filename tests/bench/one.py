"""Runs one benchmark. A module of its own, by whose name another process finds it: a main module has none."""

from __future__ import annotations

import importlib
import tempfile
import uuid
from pathlib import Path

from recovery.settings import load
from recovery.stack import Stack
from tests.bench.rows import Row

WITH_WORKERS = (
    "lag",
    "storm",
    "busy_operators",
    "throughput",
    "one_task",
    "fan_out",
    "mix",
    "idle",
    "waiting",
    "redis_lost",
    "kill",
    "noticed",
    "wide",
    "stale",
    "millions",
)


CACHE_GB = 4
"""Of MongoDB, where a benchmark has not its own."""


def measure_one(name: str) -> list[Row]:
    """Run one benchmark, on servers of its own: what another leaves in caches and logs is not its cost."""
    module = importlib.import_module(f"tests.bench.{name}")
    with (
        tempfile.TemporaryDirectory(prefix="recovery-bench-") as folder,
        Stack(Path(folder), mongo_cache_gb=getattr(module, "CACHE_GB", CACHE_GB)) as stack,
    ):
        settings = load(
            mongo_uri=stack.mongo_uri, broker_url=stack.broker_url, database=f"bench_{uuid.uuid4().hex[:8]}"
        )
        found: list[Row] = module.run(stack, settings) if name in WITH_WORKERS else module.run(settings)
        return found
