"""What signing costs: messages pushed in batches, as a scanner does, and looked at as a worker takes them, with and
without a key, pair by pair. Seconds are those of the process that does it: Redis has the same to do in both."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import redis

from recovery import Settings
from recovery.queue import Broker, Signer, encode
from recovery.queue.message import UNSIGNED
from recovery.records.ids import child_task_id, new_pass, new_process_id, record_id
from recovery.store import Queued
from recovery.worker.messages.intake import MessageIntake
from tests.bench.rows import Row, medians, ratio_row
from tests.bench.turns import in_turn, ratios

MESSAGES, BATCH, PAIRS = 20_000, 1000, 7
SIGNED = Signer(["k" * 64])
ACTOR = "order"


def run(settings: Settings) -> list[Row]:
    queued = [made(place) for place in range(MESSAGES)]
    signers = {"unsigned": UNSIGNED, "signed": SIGNED}
    pushed = in_turn({name: partial(push, settings, queued, one) for name, one in signers.items()}, PAIRS)
    taken = in_turn({name: partial(take, queued, one) for name, one in signers.items()}, PAIRS)
    return [
        ratio_row(f"{what}, signed to unsigned", ratios(took, "signed", "unsigned"), "", detail(took))
        for what, took in (("pushing", pushed), ("taking", taken))
    ]


def made(place: int) -> Queued:
    key = record_id(new_process_id(), child_task_id("start", 0, place))
    return Queued(key, ACTOR, new_pass(), datetime.now(UTC))


def detail(took: Mapping[str, Sequence[float]]) -> str:
    return medians({name: [MESSAGES / one for one in times] for name, times in took.items()}, "a second")


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
    intake = MessageIntake([ACTOR], [], signer, sweeps=False)
    began = time.process_time()
    assert all(intake.take(ACTOR, text) for text in texts)
    return time.process_time() - began
