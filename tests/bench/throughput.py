"""Durable throughput: 300 chains of 10 no-op steps, against Celery's own `chain` with its Redis backend.

Both on two worker processes and the same broker, started one after the other by one client, and waited for.
Ours has each step's result in MongoDB, by majority and journal, before the next one runs; plain Celery's results
are in Redis' memory, and a worker killed in the middle ends its chain for ever.
"""

from __future__ import annotations

from typing import Any

from celery import chain as celery_chain

from recovery import Recovery, Settings
from recovery.stack import Stack
from tests.bench import apps, workers
from tests.bench.rows import Row, ratio_row

CHAINS, STEPS, REPEATS = 300, 10, 3
TWO = ["-c", "1"]


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    plain, ours = [], []
    for _ in range(REPEATS):
        with workers.plain(stack, settings, 2, TWO):
            plain.append(workers.seconds(_plain))
        with workers.ours(stack, settings, 2, TWO):
            ours.append(workers.seconds(lambda: _ours(app)))
    steps = CHAINS * STEPS
    detail = f"ours {steps / min(ours):,.0f} steps/s, Celery {steps / min(plain):,.0f} steps/s (best of {REPEATS})"
    ratios = [theirs / own for theirs, own in zip(plain, ours, strict=True)]
    return [ratio_row("throughput of chains / Celery's chain", ratios, ">= 0.7", detail)]


def _ours(app: Recovery) -> None:
    started = [app.start("chain", STEPS) for _ in range(CHAINS)]
    assert [app.result(process_id, timeout=120) for process_id in started] == [1] * CHAINS


def _plain() -> None:
    step: Any = apps.plain_step
    started = [celery_chain(*[step.s() for _ in range(STEPS)]).apply_async() for _ in range(CHAINS)]
    assert [result.get(timeout=120) for result in started] == [1] * CHAINS
