"""Durable throughput: 300 chains of 10 no-op steps, against Celery's own `chain` with its Redis backend.

Both on two worker processes and the same broker, started one after the other by one client, and waited for. Both have
run some chains before, so that neither's connections and imports are measured.
Ours has each step's result in MongoDB, by majority and journal, before the next one runs; plain Celery's results
are in Redis' memory, and a worker killed in the middle ends its chain for ever.
"""

from __future__ import annotations

from typing import Any

from celery import chain as celery_chain

from recovery import Recovery, Settings
from recovery.stack import Stack
from tests.bench import apps, workers
from tests.bench.rows import Row, medians, ratio_row
from tests.bench.turns import in_turn, ratios

CHAINS, STEPS, REPEATS, WARM_UP = 300, 10, 4, 4
TWO = ["-c", "1"]


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors

    def plain() -> float:
        with workers.plain(stack, settings, 2, TWO):
            _plain(WARM_UP)
            return CHAINS * STEPS / workers.seconds(lambda: _plain(CHAINS))

    def ours() -> float:
        with workers.ours(stack, settings, 2, TWO):
            _ours(app, WARM_UP)
            return CHAINS * STEPS / workers.seconds(lambda: _ours(app, CHAINS))

    found = in_turn({"Celery": plain, "ours": ours}, REPEATS)
    name = "throughput of chains / Celery's chain"
    return [ratio_row(name, ratios(found, "ours", "Celery"), ">= 0.7", medians(found, "steps/s"))]


def _ours(app: Recovery, chains: int) -> None:
    started = [app.start("chain", STEPS) for _ in range(chains)]
    assert [app.result(process_id, timeout=120) for process_id in started] == [1] * chains


def _plain(chains: int) -> None:
    step: Any = apps.plain_step
    started = [celery_chain(*[step.s() for _ in range(STEPS)]).apply_async() for _ in range(chains)]
    assert [result.get(timeout=120) for result in started] == [1] * chains
