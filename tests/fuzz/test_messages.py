"""Of any text a worker takes a message that it could have been sent, or nothing; and it goes on."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from recovery.limits import LONGEST
from recovery.queue import Signer, encode, parse_id, remake
from recovery.queue.message import NUDGE, SPARK_QUEUE, SWEEP, UNSIGNED
from recovery.worker.control import COMMANDS
from recovery.worker.messages.intake import MessageIntake
from tests.cluster.conftest import Cluster
from tests.cluster.conftest import cluster as cluster
from tests.fuzz.conftest import rounds
from tests.fuzz.mutations import mutated
from tests.queue.shapes import ARGUMENT, command
from tests.queue.test_message import ACTOR, queued
from tests.worker.test_messages import Stranger, family, goes_on, no_trace

pytestmark = pytest.mark.thorough

KEY = Signer(["k" * 32])
PLAIN, SIGNED, SWEEPS = (
    encode(queued()),
    encode(queued(), KEY),
    remake(SWEEP, "1", [], {"repair": True, "every": 60.0}, SPARK_QUEUE, "1"),
)
REPLY = {"reply_to": {"exchange": "x", "routing_key": "0" * 8 + "-0000" * 3 + "-" + "0" * 12}}
COMMAND = command(method="ping", ticket="0" * 8 + "-0000" * 3 + "-" + "0" * 12, **REPLY)


@rounds(ci=4_000, soak=100_000)
def test_the_intake_makes_nothing_else(seed: int, rounds: int, caplog: pytest.LogCaptureFixture) -> None:
    chance = random.Random(seed)
    open_, keyed = (MessageIntake([ACTOR], COMMANDS, signer, sweeps=True) for signer in (UNSIGNED, KEY))
    taken = 0
    for _ in range(rounds):
        good = chance.choice([PLAIN, SIGNED, json.dumps(SWEEPS)]).encode()
        text = mutated(chance, chance.choice([good, COMMAND]))
        for intake in (open_, keyed):
            for queue in (ACTOR, NUDGE, SPARK_QUEUE):
                if (message := intake.take(queue, text)) is not None:
                    _check(queue, message, signed=intake is keyed)
                    taken += 1
            if (message := intake.command(text)) is not None:
                body = json.loads(message["body"])
                assert body["method"] in COMMANDS
                assert body["arguments"] == {}
                assert body.keys() <= {"method", "arguments", "destination", "reply_to", "ticket"}
                taken += 1
    assert taken > rounds / 20, "most are not so damaged that nothing is tried"
    assert ARGUMENT not in caplog.text
    assert all(len(record.getMessage()) < 200 for record in caplog.records)


def _check(queue: str, message: dict[str, Any], *, signed: bool) -> None:
    """That a message could have been sent: made anew from what little counts, it is the same."""
    message_id, tag = message["headers"]["id"], message["properties"]["delivery_tag"]
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    if queue == ACTOR:
        told = parse_id(message_id)
        assert told is not None
        args = [told.decision_id, told.pass_key]
        assert not signed or message_id == json.loads(SIGNED)["headers"]["id"]
    else:
        assert not signed, "nothing else was signed"
    if queue == SPARK_QUEUE:
        kwargs = json.loads(message["body"])[1]
        assert kwargs.keys() == {"repair", "every"}
        assert kwargs["repair"] in (True, False) and 1 <= kwargs["every"] <= LONGEST
    task = {SPARK_QUEUE: SWEEP}.get(queue, queue)
    del message["text"]
    assert message == remake(task, message_id, args, kwargs, queue, tag)


@pytest.mark.soak
@pytest.mark.cluster
@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_worker_goes_on(cluster: Cluster, pool: str, seed: int) -> None:
    chance, stranger = random.Random(seed), Stranger(cluster)
    worker = cluster.worker(pool=pool)
    before = family(worker)
    for _ in range(100):
        texts = [mutated(chance, stranger.good().encode()) for _ in range(100)]
        stranger.push("slow", *texts)
        stranger.push(NUDGE, *texts)
        for _ in texts:
            stranger.broadcast(mutated(chance, COMMAND))
        stranger.wait_taken(60)
        assert goes_on(cluster)
    stranger.everything()
    stranger.wait_taken(60)
    assert goes_on(cluster)
    assert family(worker) == before
    worker.stop(30)
    no_trace(cluster, worker)
    assert worker.exit_code == 0
    assert not any(stranger.redis.llen(queue) for queue in ("slow", NUDGE)), "none was put back at its end"
    assert "could not put back" not in cluster.log(worker)
