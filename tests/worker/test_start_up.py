"""A worker that starts waits for servers that are away, and not for those that won't have it."""

from __future__ import annotations

import gc
import re
from dataclasses import replace

import pytest
from redis.exceptions import AuthenticationError

from recovery import Settings
from recovery.errors import BrokerError, ServerRefused, ServerUnavailable, StoreDenied, StoreUnavailable
from recovery.queue import Broker
from recovery.retry import Backoff
from recovery.retry.own_work import WORKER_START
from recovery.store import check_server
from recovery.worker import start_up as patience
from recovery.worker.start_up import keep_what_is_imported, wait_for_servers

SOON = replace(WORKER_START, policy=Backoff(initial=0.001, coefficient=1, jitter=(0, 0), maximum=0.001))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "WORKER_START", SOON)


def broker_error(cause: Exception) -> BrokerError:
    error = BrokerError("no")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("error", [ServerUnavailable("away"), StoreUnavailable("gone")], ids=["away", "gone"])
def test_it_waits_for_a_server_that_is_away(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    left = [error, error]

    def step() -> None:
        if left:
            raise left.pop()

    wait_for_servers(step, 10)
    assert left == []
    first, last = caplog.messages
    assert first.startswith("start of this worker: retry 1 in 0.001 s (NODE_NOT_AVAILABLE, 20002): ")
    assert re.fullmatch(r"start of this worker: done after \d\.\d s, retries: 2", last)


def test_it_waits_so_long_and_no_longer() -> None:
    with pytest.raises(ServerUnavailable):
        wait_for_servers(lambda: refuse(ServerUnavailable("away")), 0.01)


@pytest.mark.parametrize(
    "error",
    [ServerRefused("no"), StoreDenied("not authorized"), broker_error(AuthenticationError("WRONGPASS no"))],
    ids=["server", "step", "broker"],
)
def test_what_no_waiting_helps_is_told_at_once(error: Exception) -> None:
    told: list[Exception] = []

    def step() -> None:
        told.append(error)
        raise error

    with pytest.raises(type(error)):
        wait_for_servers(step, 3600)
    assert told == [error]


def test_servers_that_refuse(settings: Settings) -> None:
    there = settings.mongo_uri.removeprefix("mongodb://")
    with pytest.raises(ServerRefused, match=r"Authentication failed.*Check the user") as mongo:
        check_server(f"mongodb://nobody:secret@{there}")
    with pytest.raises(ServerRefused, match="Check the user") as broker:
        Broker(settings.broker_url.replace("redis://", "redis://nobody:secret@")).check()
    for caught in (mongo, broker):
        assert "secret" not in str(caught.value)


def refuse(error: Exception) -> None:
    raise error


def test_what_is_imported_is_not_looked_at_again() -> None:
    """What comes after it is."""
    gc.unfreeze()  # what tests keep of themselves
    keep_what_is_imported()
    assert gc.get_freeze_count() > 10_000
    there = {id(one) for one in gc.get_objects()}
    later: list[list[int]] = [[]]
    assert id(later) in {id(one) for one in gc.get_objects()} - there
