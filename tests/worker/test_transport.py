"""A connection that was given up, and a message of it that is given back after that."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest
from kombu import Connection
from kombu.asynchronous import Hub
from kombu.transport import redis
from redis import Redis

from recovery.settings import Settings
from recovery.stack import Valkey
from recovery.stack.server_process import free_port
from recovery.worker.messages.transport import Channel, Transport

# In a process of its own: what is installed stays.
LATE = """
import json, sys
from kombu import Connection, Consumer, Queue
from recovery.worker.messages import transport
if sys.argv[2] == "mended":
    transport.install()
connection = Connection(sys.argv[1])
connection.SimpleQueue("late").put("a message")
got = []
with Consumer(connection.default_channel, [Queue("late")], callbacks=[lambda _, message: got.append(message)]):
    connection.drain_events(timeout=5)
connection.release()
got[0].channel._disconnect_pools()  # as a channel does that loses its connection
try:
    got[0].reject(requeue=True)
except Exception as error:
    print(json.dumps([type(error).__name__, isinstance(error, connection.connection_errors)]))
"""


@pytest.mark.parametrize(("which", "told"), [("mended", ["ConnectionError", True]), ("own", ["AttributeError", False])])
def test_a_late_word_of_a_connection_that_was_given_up(settings: Settings, which: str, told: list[object]) -> None:
    """The day kombu's own says it too, ours can go."""
    command = [sys.executable, "-c", LATE, settings.broker_url, which]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == told


def test_nothing_wakes_an_idle_loop_each_second(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The day kombu's own does so no more, ours need not prevent it."""
    monkeypatch.setattr(Channel, "intake", object())  # as in a worker
    assert first_timer(settings, redis.Transport) < 2
    assert first_timer(settings, Transport) > 5


def first_timer(settings: Settings, transport: type) -> float:
    """Seconds until the first of its timers in an event loop."""
    hub = Hub()
    with Connection(settings.broker_url, transport=transport) as connection:
        connection.transport.register_with_event_loop(connection.connection, hub)
        live = [eta for eta, _, entry in hub.timer.queue if not entry.canceled]
        return float(min(live) - monotonic())


@pytest.mark.thorough
def test_a_replica_counts_as_a_server_that_does_not_answer(tmp_path: Path) -> None:
    """Else each connection would be lost with its first message, several times a second."""
    server = Valkey(tmp_path / "data", tmp_path / "log")
    try:
        server.start()
        with Redis(port=server.port) as redis:
            redis.replicaof("127.0.0.1", str(free_port()))
            with Connection(server.url, transport=Transport) as connection:
                with pytest.raises(
                    ConnectionError, match=r"is a replica, .*: RECOVERY_BROKER_URL must name its primary"
                ):
                    connection.connect()
                assert issubclass(ConnectionError, connection.connection_errors), "so Celery tries again after a pause"
                redis.replicaof("NO", "ONE")
                connection.connect()
    finally:
        server.stop()
