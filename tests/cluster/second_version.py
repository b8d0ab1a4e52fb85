"""The application of `first_version`, after its actor `charge` got another parameter, which `order` passes."""

from __future__ import annotations

from typing import Any

from recovery import Recovery
from tests.cluster.app import run_until

app = Recovery(version="2.0")


@app.actor(worker_timeout=600)
def charge(folder: str, number: int, currency: str = "EUR") -> str:
    return str(run_until(folder, 600, f"{number} {currency}"))


@app.process(worker_timeout=600)
def order(folder: str, number: int) -> Any:
    return charge.schedule(folder, number, currency="SEK")
