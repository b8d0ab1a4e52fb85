"""What counts as a poll: one that Redis answered, or that there is no room for while Redis answers something else."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from kombu import Connection, Consumer, Queue

from recovery import Recovery
from recovery.records import Decision, DecisionState
from recovery.settings import Settings
from recovery.stack.server_process import HOST
from recovery.store import layout
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages import queue_consumption as module
from recovery.worker.messages import transport
from recovery.worker.messages.queue_consumption import Polls, QueueConsumption
from recovery.worker.messages.transport import PAUSE, TryingConnection
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.store.writing import put


class Channel:
    closed = False

    def __init__(self, room: bool) -> None:
        self.qos = SimpleNamespace(can_consume=lambda: room)


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a Redis that takes connections and says nothing."""
    with socket.create_server((HOST, 0)) as server:
        yield f"redis://{HOST}:{server.getsockname()[1]}/0"


def test_a_poll_counts_while_its_answer_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    now, returned = [100.0], []
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    polls = Polls()
    polls.on_return = lambda: returned.append(now[0])
    assert polls.recent(["a", "b"]) == set()
    polls.answered(["a"])
    polls.answered(["a"])
    assert polls.recent(["a", "b"]) == {"a"}
    now[0] += module.RECENT + 0.1
    assert polls.recent(["a", "b"]) == set()
    polls.answered(["a"])
    assert returned == [100.0, now[0]], "told at once when polls begin, and begin again"


def test_what_there_is_no_room_for() -> None:
    polls, gone = Polls(), Channel(room=False)
    gone.closed = True
    for queue, channel in {"free": Channel(room=True), "full": Channel(room=False), "gone": gone}.items():
        polls.asked(channel, [queue])
    assert polls.full(["free", "full", "gone", "never"]) == {"full"}


def told(settings: Settings, polls: Polls) -> set[str]:
    """The queues that a worker's heartbeat says are polled."""
    app = Recovery(settings.model_copy(update={"heartbeat_interval": 0.4}))
    layout.create(app.resources.store.database)
    celery: Any = Celery(set_as_current=False)
    worker = identify("one", ("free", "full", "other"))
    lifeline = Lifeline(app, worker, QueueConsumption(SimpleNamespace(app=celery), ()), polls)
    for _ in range(2):  # by the second it is known whether Redis answers anything else
        lifeline.beat_once()
    return set(app.resources.store.queues.all())


def test_a_heartbeat_says_what_redis_said(emptied: Settings) -> None:
    assert told(emptied, Polls()) == set(), "a worker that lives, and was not answered yet"


def test_a_worker_without_room_polls_as_long_as_redis_answers(emptied: Settings, silent: str) -> None:
    polls = Polls()
    polls.asked(Channel(room=True), ["free"])
    polls.asked(Channel(room=False), ["full"])
    assert told(emptied.model_copy(update={"broker_url": silent}), polls) == set()
    polls.answered(["other"])
    assert told(emptied, polls) == {"full", "other"}


def test_what_waited_while_nobody_polled_is_looked_at_soon(emptied: Settings) -> None:
    """Messages may have been lost meanwhile, and what has waited for long is looked at seldom."""
    app = Recovery(emptied)
    store, polls = app.resources.store, Polls()
    layout.create(store.database)
    far = store.now() + timedelta(hours=1)
    for actor in ("free", "full"):
        put(store, Decision(id=f"p/{actor}", actor=actor, state=DecisionState.QUEUED, recovery_time=far, queued_at=far))
    store.queues.polled({"free": None, "full": None})
    store.database["queues"].update_one({"_id": "free"}, {"$set": {"polledAt": store.now() - timedelta(seconds=20)}})
    polls.answered(["free", "full"])
    told(emptied, polls)
    looked_at = {one["actor"]: one["recoveryTime"] for one in store.database["decisions"].find()}
    assert looked_at["full"] == far, "another worker has polled it"
    assert looked_at["free"] <= store.now() + timedelta(seconds=emptied.message_timeout / 2)
    assert store.queues.polled_again(["free", "never"], 8.0, "w") == []


def test_the_transport_tells_which_polls_were_answered(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    polls = Polls()
    monkeypatch.setattr(transport, "POLLS", polls)
    with Connection(settings.broker_url, transport=transport.Transport) as connection:
        queues = [Queue(name) for name in ("empty", "full")]
        connection.SimpleQueue("full").put("a message")
        got: list[object] = []
        with Consumer(connection.channel(), queues, callbacks=[lambda _, message: got.append(message)], no_ack=True):
            connection.drain_events(timeout=5)
            assert got
            assert polls.recent(["empty", "full"]) == {"empty", "full"}, "a poll asks for all of them at once"
            monkeypatch.setattr(polls, "_answered", {})
            with contextlib.suppress(TimeoutError):
                connection.drain_events(timeout=1.5)
            assert polls.recent(["empty", "full"]) == {"empty", "full"}, "nothing is an answer as well"


def test_a_connection_is_tried_again_every_few_seconds(silent: str) -> None:
    pauses: list[float] = []

    def note(_error: Exception, pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == 40:
            raise KeyboardInterrupt

    options = {"socket_timeout": 0.01}
    connection = TryingConnection(silent, transport=transport.Transport, transport_options=options)
    with pytest.MonkeyPatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr("kombu.utils.functional.sleep", lambda _: None)
        connection.ensure_connection(note)
    assert [round(pause, 1) for pause in pauses[:4]] == [1.0, 1.1, 1.2, 1.3], "it is back soon, perhaps"
    assert max(pauses) == PAUSE
