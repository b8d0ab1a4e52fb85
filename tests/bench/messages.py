"""What signing costs: messages pushed in batches, as a scanner does, and looked at as a worker takes them, with and
without a key, pair by pair. Seconds are those of the process that does it: Redis has the same to do in both."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime

import redis

from recovery import Settings
from recovery.queue import Broker, Signer, encode
from recovery.queue.signing import UNSIGNED
from recovery.records.ids import child_task_id, new_pass, new_process_id, record_id
from recovery.store import Queued
from tests.bench.rows import Row, ratio_row
from workers.intake import Intake

MESSAGES, BATCH, PAIRS = 20_000, 1000, 7
SIGNED = Signer(["k" * 64])
ACTOR = "order"


def run(settings: Settings) -> list[Row]:
    queued = [made(place) for place in range(MESSAGES)]
    pushed = [(push(settings, queued, UNSIGNED), push(settings, queued, SIGNED)) for _ in range(PAIRS)]
    taken = [(take(queued, UNSIGNED), take(queued, SIGNED)) for _ in range(PAIRS)]
    return [
        ratio_row(f"{what}, signed to unsigned", [signed / plain for plain, signed in pairs], "", detail(pairs))
        for what, pairs in (("pushing", pushed), ("taking", taken))
    ]


def made(place: int) -> Queued:
    key = record_id(new_process_id(), child_task_id("start", 0, place))
    return Queued(key, ACTOR, new_pass(), datetime.now(UTC))


def detail(pairs: Sequence[tuple[float, float]]) -> str:
    plain, signed = (sorted(times)[PAIRS // 2] for times in zip(*pairs, strict=True))
    return f"{MESSAGES / signed:,.0f} a second signed, {MESSAGES / plain:,.0f} unsigned"


def push(settings: Settings, queued: Sequence[Queued], signer: Signer) -> float:
    """Seconds of this process to push all."""
    broker = Broker(settings.broker_url, signer)
    began = time.process_time()
    for first in range(0, len(queued), BATCH):
        broker.push(queued[first : first + BATCH])
    lasted = time.process_time() - began
    with redis.Redis.from_url(settings.broker_url) as server:
        assert server.llen(ACTOR) == len(queued)
        server.delete(ACTOR)
    return lasted


def take(queued: Sequence[Queued], signer: Signer) -> float:
    """Seconds of this process to make of all what Celery gets."""
    texts = [encode(one, signer).encode() for one in queued]
    intake = Intake([ACTOR], [], signer, sweeps=False)
    began = time.process_time()
    assert all(intake.take(ACTOR, text) for text in texts)
    return time.process_time() - began
