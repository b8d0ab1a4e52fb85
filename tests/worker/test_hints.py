"""What a slot takes from Redis by itself, past Celery: believed as little as what Celery takes."""

from __future__ import annotations

import pytest
import redis

from recovery import metrics
from recovery.queue import Broker, encode, signer
from recovery.queue.untrusted import MAX_BYTES
from recovery.records.ids import new_pass, new_process_id, record_id
from recovery.setting_forms import Secret
from recovery.settings import Settings
from recovery.stack.server_process import free_port
from recovery.store import Queued, Store
from recovery.worker.control import COMMANDS
from recovery.worker.messages.intake import MessageIntake, hints
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting


@pytest.fixture
def keyed(emptied: Settings) -> Settings:
    return emptied.model_copy(update={"message_key": Secret("k" * 32)})


def queued(settings: Settings, count: int) -> list[Queued]:
    now = Store(settings).now()
    return [Queued(record_id(new_process_id(), "start"), "order", new_pass(), now) for _ in range(count)]


def take(settings: Settings, count: int) -> list[str]:
    intake = MessageIntake(["order"], COMMANDS, signer(settings), sweeps=False)
    found = hints(Broker(settings.broker_url, signer(settings)), intake)("order", count)
    return [one.decision_id for one in found]


def test_those_that_come_next(keyed: Settings) -> None:
    pushed = queued(keyed, 5)
    Broker(keyed.broker_url, signer(keyed)).push(pushed)
    assert take(keyed, 3) == [one.id for one in pushed[:3]]
    assert take(keyed, 3) == [one.id for one in pushed[3:]]
    assert take(keyed, 3) == []


def test_none_once_the_worker_ends(keyed: Settings) -> None:
    broker, intake = (
        Broker(keyed.broker_url, signer(keyed)),
        MessageIntake(["order"], COMMANDS, signer(keyed), sweeps=False),
    )
    broker.push(queued(keyed, 1))
    assert hints(broker, intake, lambda: False)("order", 1) == []
    assert len(hints(broker, intake, lambda: True)("order", 1)) == 1


def test_what_is_none_of_ours_is_refused_and_counted(keyed: Settings) -> None:
    """One without a signature, one for another actor, one that is no message, one that is too large."""
    (ours,) = queued(keyed, 1)
    client = redis.Redis.from_url(keyed.broker_url)
    (other,) = queued(keyed, 1)
    for text in (
        encode(other),
        encode(Queued(other.id, "another", other.pass_key, other.queued_at), signer(keyed)),
        "not a message",
        "x" * (MAX_BYTES + 1),
    ):
        client.lpush("order", text)
    Broker(keyed.broker_url, signer(keyed)).push([ours])
    before = sum(
        one.value for metric in metrics.REFUSED.collect() for one in metric.samples if one.name.endswith("_total")
    )
    assert take(keyed, 10) == [ours.id]
    after = sum(
        one.value for metric in metrics.REFUSED.collect() for one in metric.samples if one.name.endswith("_total")
    )
    assert after - before == 4


def test_where_redis_is_away_or_something_else_stands_there_there_are_none(emptied: Settings) -> None:
    away = emptied.model_copy(update={"broker_url": f"redis://127.0.0.1:{free_port()}"})
    assert take(away, 10) == []
    redis.Redis.from_url(emptied.broker_url).set("order", "somebody's")
    assert take(emptied, 10) == []
