"""An outage is logged once for each process, and its other lines become DEBUG."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest
from redis.exceptions import ConnectionError as ConnectionLost

from recovery.errors import BrokerError, RecordInvalid, StoreUnavailable
from recovery.queue.celery_app import OwnCelery
from recovery.worker.outage_logs import BREAKERS, QUIET, WAITS, OncePerOutage
from recovery.worker.scanning import NudgeConsumer

STEPS = "recovery.test_outage_lines"
"""Name of a logger."""


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def once(clock: Clock) -> OncePerOutage:
    logging.getLogger(STEPS).setLevel(logging.INFO)
    return OncePerOutage(clock)


def record(*args: object, name: str = STEPS, **fields: object) -> logging.LogRecord:
    made = logging.makeLogRecord({"name": name, "levelno": logging.WARNING, "levelname": "WARNING", "args": args})
    made.__dict__ |= fields
    return made


def lost_redis() -> BrokerError:
    error = BrokerError("ConnectionError: refused")
    error.__cause__ = ConnectionLost("refused")
    return error


@pytest.mark.parametrize("error", [StoreUnavailable("away"), lost_redis()])
def test_the_first_line_of_an_outage_passes(once: OncePerOutage, clock: Clock, error: Exception) -> None:
    first, again = record("a step", error), record("another step", error)
    assert once.filter(first) and once.filter(first), "whatever handlers it has"
    for _ in range(5):
        clock.now += 0.9 * QUIET
        assert not once.filter(record("a step", error))
    assert not once.filter(again) and again.levelname == "DEBUG"
    clock.now += QUIET
    assert once.filter(record("a step", error)), "it is another outage"


def test_what_is_wrong_with_one_record_or_one_server_hides_nothing_else(once: OncePerOutage) -> None:
    assert once.filter(record("a step", StoreUnavailable("away")))
    assert once.filter(record("a step", RecordInvalid("no")))
    assert once.filter(record("a step", BrokerError("ResponseError: no")))
    assert once.filter(record("a step", lost_redis()))
    assert once.filter(record("no heartbeat", StoreUnavailable("away"), recovery_outage=True))
    assert once.filter(record())


def test_what_the_application_logs_and_what_ends_the_worker_is_not_hidden(once: OncePerOutage) -> None:
    away = StoreUnavailable("away")
    assert once.filter(record("a step", away))
    assert once.filter(record("order 17 is not started", away, name="shop.orders"))
    assert once.filter(record(away, levelno=logging.CRITICAL, levelname="CRITICAL"))


def test_writes_that_wait_are_logged_unless_the_outage_was(once: OncePerOutage, clock: Clock) -> None:
    """Of two lines, both or none."""
    assert once.filter(record(1, 3.0, "p/t", name=WAITS))
    assert once.filter(record(20.0, name=WAITS))
    clock.now += QUIET
    assert once.filter(record("MongoDB", 0.1, 1, name=BREAKERS))
    assert not once.filter(record(1, 3.0, "p/t", name=WAITS))
    assert once.filter(record("MongoDB", 20.0, name=BREAKERS))
    assert not once.filter(record(20.0, name=WAITS))


def test_the_nudges_consumer_stops_without_a_connection() -> None:
    """Celery has closed it by then, and asks it which errors of a cancelled consumer to ignore."""

    def cancel() -> None:
        raise ConnectionLost("closed by server")

    with OwnCelery(set_as_current=False, broker="redis://127.0.0.1:1/0") as celery:
        consumer = object.__new__(NudgeConsumer)
        consumer.consumers = [SimpleNamespace(cancel=cancel, channel=None)]
        consumer.stop(SimpleNamespace(connection=None, app=celery))
