"""Durable throughput: chains of 10 steps, which do nothing or take some time, against Celery's own `chain` with its
Redis backend.

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

STEPS, REPEATS, WARM_UP = 10, 3, 4
CHAINS = {0: 600, 1: 400, 10: 200, 100: 40}
"""{milliseconds that a step takes: chains}"""
TWO = ["-c", "1"]


def run(stack: Stack, settings: Settings) -> list[Row]:
    app = Recovery(settings)
    app.actors = apps.app.actors
    found = []
    for milliseconds, chains in CHAINS.items():

        def plain(chains: int = chains, seconds: float = milliseconds / 1000) -> float:
            with workers.plain(stack, settings, 2, TWO):
                _plain(WARM_UP, seconds)
                return chains * STEPS / workers.seconds(lambda: _plain(chains, seconds))

        def ours(chains: int = chains, seconds: float = milliseconds / 1000) -> float:
            with workers.ours(stack, settings, 2, TWO):
                _ours(app, WARM_UP, seconds)
                return chains * STEPS / workers.seconds(lambda: _ours(app, chains, seconds))

        speeds = in_turn({"Celery": plain, "ours": ours}, REPEATS)
        name = f"chains of steps of {milliseconds} ms / Celery's chain"
        found.append(ratio_row(name, ratios(speeds, "ours", "Celery"), ">= 0.9", medians(speeds, "steps/s")))
    return found


def _ours(app: Recovery, chains: int, seconds: float) -> None:
    started = [app.start("chain", STEPS, seconds) for _ in range(chains)]
    assert [app.result(process_id, timeout=120) for process_id in started] == [1] * chains


def _plain(chains: int, seconds: float) -> None:
    step: Any = apps.plain_step
    links = [step.s(None, seconds), *(step.s(seconds=seconds) for _ in range(STEPS - 1))]
    started = [celery_chain(*links).apply_async() for _ in range(chains)]
    assert workers.plain_results(started, timeout=120) == [1] * chains
