"""Rules and records run inside Spark executors: importing them brings in no driver."""

from __future__ import annotations

import subprocess
import sys

import pytest

DRIVERS = ("pymongo", "bson", "redis", "celery", "kombu", "pyspark")


@pytest.mark.parametrize("module", ["recovery.rules", "recovery.records"])
def test_no_driver_comes_along(module: str) -> None:
    ask = f"import sys, {module}; print([name for name in {DRIVERS!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.strip() == "[]"
