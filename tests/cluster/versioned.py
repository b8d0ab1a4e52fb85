"""An application whose version the environment names: the same code is deployed as one version and as another."""

from __future__ import annotations

import os
from typing import Any

from recovery import Recovery
from tests.cluster.app import run_until

VERSION, COMPATIBLE = "TEST_VERSION", "TEST_COMPATIBLE"

app = Recovery(version=os.environ.get(VERSION, "1.0"), compatible_with=os.environ.get(COMPATIBLE, "").split())


@app.actor(worker_timeout=600)
def step(folder: str) -> str:
    """Runs until it may end; the version that ran it."""
    return str(run_until(folder, 600, app.version))


@app.actor()
def after(versions: list[str]) -> list[str]:
    return [*versions, app.version]


@app.process()
def free(folder: str) -> Any:
    return after.schedule([step.schedule(folder)])


@app.process(versions="same")
def pinned(folder: str) -> Any:
    return after.schedule(after.schedule([step.schedule(folder)]))
