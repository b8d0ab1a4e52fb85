"""What waits behind the messages of a wide process that was aborted: how long until it runs."""

from __future__ import annotations

import time
from datetime import UTC, datetime

from recovery import Recovery, Settings
from recovery.records.ids import child_task_id, new_pass, new_process_id, record_id
from recovery.stack import Stack
from recovery.store import Queued
from tests.bench import apps
from tests.bench.rows import Row, row
from tests.bench.workers import ours

MESSAGES = 105_000


def run(stack: Stack, settings: Settings, count: int = MESSAGES) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    aborted, pass_key, now = new_process_id(), new_pass(), datetime.now(UTC)
    with ours(stack, settings, 1, ["-c", "2"]):
        for first in range(0, count, 10_000):
            tasks = [child_task_id("start", 0, place) for place in range(first, min(first + 10_000, count))]
            app.resources.broker.push([Queued(record_id(aborted, task), "chain", pass_key, now) for task in tasks])
        began = time.perf_counter()
        app.result(app.start("chain", 1), timeout=600)
        took = time.perf_counter() - began
    return [row(f"one task behind {count:,} stale messages", took, "", "s", f"{count / took:,.0f} messages/s")]
