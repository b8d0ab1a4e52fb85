"""What the pictured cluster works on: orders that are packed, charged and shipped, and a report now and then."""

from __future__ import annotations

import random
import time
from typing import Any

from recovery import Recovery

app = Recovery()


@app.actor(worker_timeout=30)
def pack(item: int) -> int:
    time.sleep(random.uniform(0.1, 0.4))
    return item


@app.actor(worker_timeout=30, retry_initial=0.5, retry_total=60)
def charge(items: list[int]) -> int:
    """The payment service is away for one in twelve calls."""
    time.sleep(random.uniform(0.05, 0.1))
    if random.random() < 1 / 12:
        raise ConnectionRefusedError("the payment service refused the connection")
    return sum(items)


@app.actor(worker_timeout=30)
def ship(paid: int) -> int:
    time.sleep(random.uniform(0.2, 0.6))
    return paid


@app.process()
def order(items: int) -> Any:
    return ship.schedule(charge.schedule([pack.schedule(item) for item in range(items)]))


@app.actor(worker_timeout=60)
def summarize(rows: int) -> int:
    time.sleep(random.uniform(1.0, 2.5))
    return rows


@app.process()
def report(rows: int, *, sound: bool = True) -> Any:
    if not sound:
        raise ValueError("a row has no price")
    return summarize.schedule(rows)


@app.process(schedule="5s", overlap="allow")
def stocktaking() -> None:
    """Started by its schedule."""
