"""An application before its actor `charge` got another parameter."""

from __future__ import annotations

from typing import Any

from recovery import Recovery
from tests.cluster.app import run_until

app = Recovery(version="1.0")


@app.actor(worker_timeout=600)
def charge(folder: str, number: int) -> str:
    return str(run_until(folder, 600, f"{number} EUR"))


@app.process(worker_timeout=600)
def order(folder: str, number: int) -> Any:
    return charge.schedule(folder, number)
