"""Pushing a batch costs one command per queue; a Redis that is away is told, not raised."""

from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis
from redis import connection

from recovery import Recovery
from recovery import log_lines as seldom
from recovery.errors import BrokerError, ServerRefused, ServerUnavailable, ServerUnfit, SettingsError
from recovery.health.model import Cause
from recovery.health.redis_server import redis as check_redis
from recovery.queue import SETTINGS_CHANGED, Broker
from recovery.queue import broker as module
from recovery.settings import Settings
from recovery.stack.server_process import HOST, free_port
from recovery.stack.servers import Valkey
from recovery.store import Queued
from recovery.worker.start_up import wait_for_servers
from tests.silence import way_to
from tests.waiting import wait_until

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def batch(count: int, *, first: bool = False) -> list[Queued]:
    return [Queued(f"p/t{n}", f"actor{n % 3}", "k", NOW, first) for n in range(count)]


def waiting(settings: Settings, queue: str) -> list[str]:
    """Decisions whose messages wait in a queue, in the order in which they are taken."""
    with redis.Redis.from_url(settings.broker_url) as server:
        texts: list[bytes] = server.lrange(queue, 0, -1)
    return [json.loads(text)["headers"]["id"].partition(":")[0] for text in reversed(texts)]


@pytest.mark.thorough
def test_a_connection_that_died_without_a_word_loses_no_message(emptied: Settings) -> None:
    address = urlsplit(emptied.broker_url)
    with way_to(address.port or 0) as way:
        broker = Broker(f"redis://{HOST}:{way.port}{address.path}")
        assert broker.push(batch(3)) == 3
        way.silence(answers_calls=True)
        way.speak(remembers=False)  # the connection that there is stays silent for ever
        assert broker.push([Queued("p/late", "actor0", "k", NOW)]) == 1
        assert waiting(emptied, "actor0") == ["p/t0", "p/late"]


def test_what_is_sent_in_an_outage_is_tried_once(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first it is not known whether it is one."""
    broker, tried = Broker(emptied.broker_url), list[int]()

    def fail() -> None:
        tried.append(1)
        raise redis.exceptions.TimeoutError("silent")

    for total in (2, 3, 4):
        with pytest.raises(redis.exceptions.TimeoutError):
            broker._sent(fail)
        assert len(tried) == total
    monkeypatch.setattr(module, "AWAY_FOR", 0.0)
    with pytest.raises(redis.exceptions.TimeoutError):
        broker._sent(fail)
    assert len(tried) == 6, "it may be back"


def test_an_outage_is_over_with_the_first_that_is_sent(emptied: Settings) -> None:
    broker, answers = Broker(emptied.broker_url), iter([False, False, True, False, True])

    def send() -> None:
        if not next(answers):
            raise redis.exceptions.TimeoutError("silent")

    with pytest.raises(redis.exceptions.TimeoutError):
        broker._sent(send)
    broker._sent(send)
    broker._sent(send)
    assert next(answers, None) is None, "the last one was tried twice"


def test_no_second_message_is_lost_by_a_dead_connection(emptied: Settings) -> None:
    """Threads share some, which died together; of the first message it is not known that Redis is back."""
    address = urlsplit(emptied.broker_url)
    with way_to(address.port or 0) as way:
        broker = Broker(f"redis://{HOST}:{way.port}{address.path}")
        pool = broker._redis.connection_pool
        for connection in [pool.get_connection() for _ in range(3)]:
            pool.release(connection)
        way.silence(answers_calls=True)
        way.speak(remembers=False)
        broker._failed_at = time.monotonic()
        assert broker.push([Queued("p/first", "actor0", "k", NOW)]) == 0, "not tried twice just now"
        assert broker.push([Queued("p/second", "actor0", "k", NOW)]) == 1
        assert waiting(emptied, "actor0") == ["p/second"]


def test_a_batch_is_one_command_per_queue(emptied: Settings) -> None:
    broker = Broker(emptied.broker_url)
    with redis.Redis.from_url(emptied.broker_url) as server:
        server.config_resetstat()
        assert broker.push(batch(1000)) == 1000
        statistics = server.info("commandstats")
    assert statistics["cmdstat_lpush"]["calls"] == 3
    assert "cmdstat_multi" not in statistics
    assert broker.depths(["actor0", "actor1", "actor2", "none"]) == {
        "actor0": 334, "actor1": 333, "actor2": 333, "none": 0,
    }  # fmt: skip
    assert waiting(emptied, "actor0") == [f"p/t{n}" for n in range(0, 1000, 3)], "first pushed, first taken"


def test_what_had_its_turn_is_taken_first(emptied: Settings) -> None:
    broker = Broker(emptied.broker_url)
    broker.push([Queued("p/old", "actor0", "k", NOW), Queued("p/again", "actor0", "k", NOW, first=True)])
    broker.push(batch(4, first=True))
    assert waiting(emptied, "actor0") == ["p/t0", "p/t3", "p/again", "p/old"]


@pytest.mark.parametrize("name", ["celery", "recovery.apply.0", "orders of another", "x" * 1000, ""])
def test_nothing_is_pushed_into_a_list_that_no_actor_is_called_by(
    emptied: Settings, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    with caplog.at_level(logging.WARNING):
        assert Broker(emptied.broker_url).push([Queued("p/strange", name, "k", NOW), *batch(1)]) == 1
        assert Broker(emptied.broker_url).push([Queued("p/strange", name, "k", NOW)]) == 0
    with redis.Redis.from_url(emptied.broker_url) as server:
        assert not server.exists(name)
    assert waiting(emptied, "actor0") == ["p/t0"]
    assert "1 messages not pushed" in caplog.text


def test_nothing_to_push(emptied: Settings) -> None:
    assert Broker(emptied.broker_url).push([]) == 0
    assert Broker(emptied.broker_url).depths([]) == {}


def test_a_redis_that_is_away(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker(f"redis://127.0.0.1:{free_port()}/0")
    with caplog.at_level(logging.WARNING):
        assert broker.push(batch(3)) == 0
    assert "could not push 3 messages" in caplog.text
    with pytest.raises(BrokerError):
        broker.depths(["actor0"])
    with pytest.raises(ServerUnavailable, match="RECOVERY_BROKER_URL"):
        broker.check()


def test_what_stands_in_the_place_of_a_queue_is_no_line_for_each_push(
    emptied: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seldom, "EVERY", 60.0)
    broker = Broker(emptied.broker_url)
    with redis.Redis.from_url(emptied.broker_url) as server:
        server.set("actor0", "theirs")
    assert [broker.push(batch(1)) for _ in range(20)] == [0] * 20
    assert len(caplog.messages) == 1


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Valkey]:
    """A server of the test's own."""
    server = Valkey(tmp_path / "data", tmp_path / "log")
    server.start()
    try:
        yield server
    finally:
        server.kill()


def test_a_full_disk_is_no_wrong_password(own: Valkey) -> None:
    """Whoever starts waits until somebody made room."""
    (own.directory / "dump.rdb").mkdir()  # so it can't be written, whoever we are
    with redis.Redis.from_url(own.url) as client:
        client.config_set("save", "3600 1000000")
        client.bgsave()
        wait_until(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err", 10, "the save to fail")
    with pytest.raises(ServerUnavailable, match=r"MISCONF.*RECOVERY_BROKER_URL"):
        Broker(own.url).check()


def test_what_a_connection_is_not_to_blame_for_is_not_sent_again(own: Valkey) -> None:
    """No memory is left. And the outage of a connection, later, has its second try."""
    broker = Broker(own.url)
    with redis.Redis.from_url(own.url) as client:
        client.config_set("maxmemory-policy", "noeviction")
        client.config_set("maxmemory", "1mb")
        client.config_resetstat()
        assert broker.push(batch(1)) == 0
        assert client.info("commandstats")["cmdstat_lpush"]["rejected_calls"] == 1
        client.config_set("maxmemory", 0)
        client.client_kill_filter(_type="normal", skipme=True)
    assert broker.push(batch(1)) == 1, "over a new connection"


def test_a_replica_whose_primary_is_away_is_no_wrong_password(own: Valkey) -> None:
    with redis.Redis.from_url(own.url) as client:
        client.config_set("replica-serve-stale-data", "no")
        client.replicaof("127.0.0.1", str(free_port()))
    with pytest.raises(ServerUnavailable, match="RECOVERY_BROKER_URL"):
        Broker(own.url).check()


def test_who_is_not_let_in(own: Valkey) -> None:
    """Without a password, with a wrong one, and as a user who may do nothing."""
    with redis.Redis.from_url(own.url) as client:
        client.acl_setuser("idle", enabled=True, passwords=["+secret"], commands=["+auth"])
        client.config_set("requirepass", "right")
    for user in ("", ":wrong@", "idle:secret@"):
        with pytest.raises(ServerRefused, match="Check the user and password") as caught:
            Broker(own.url.replace("//", f"//{user}")).check()
        assert "secret" not in str(caught.value)
    Broker(own.url.replace("//", "//:right@")).check()


def test_a_key_that_is_no_queue(emptied: Settings, caplog: pytest.LogCaptureFixture) -> None:
    with redis.Redis.from_url(emptied.broker_url) as server:
        server.set("actor0", "another program's")
    assert Broker(emptied.broker_url).push(batch(1)) == 0
    assert "WRONGTYPE" in caplog.text


def test_a_redis_that_comes_back_needs_no_new_broker(emptied: Settings) -> None:
    broker = Broker(emptied.broker_url)
    broker.check()
    with redis.Redis.from_url(emptied.broker_url) as server:
        server.client_kill_filter(_type="normal", skipme=True)
    assert {broker.push(batch(1)), broker.push(batch(1))} <= {0, 1}
    assert broker.push(batch(1)) == 1


def test_an_address_that_is_none() -> None:
    with pytest.raises(SettingsError, match="RECOVERY_BROKER_URL"):
        Broker("nothing://x").push(batch(1))


def test_a_change_of_settings_is_told_to_all_or_not_at_all(emptied: Settings, caplog: pytest.LogCaptureFixture) -> None:
    """Without a Redis it costs the word, not the command."""
    with redis.Redis.from_url(emptied.broker_url) as server, server.pubsub() as listener:
        listener.psubscribe("*pidbox")
        listener.get_message(timeout=5)
        assert Broker(emptied.broker_url).tell_settings_changed()
        told = listener.get_message(timeout=5)
    assert told is not None
    body = json.loads(base64.b64decode(json.loads(told["data"])["body"]))
    assert body["method"] == SETTINGS_CHANGED
    with caplog.at_level(logging.WARNING):
        assert not Broker(f"redis://127.0.0.1:{free_port()}/0").tell_settings_changed()
    assert "with their next heartbeats" in caplog.text


def test_who_asks_workers_learns_at_once_that_redis_is_away() -> None:
    """kombu would try for six seconds; the doctor asks in an outage."""
    began = time.monotonic()
    with pytest.raises(BrokerError):
        Broker(f"redis://127.0.0.1:{free_port()}/0").workers_answering("any", 5.0)
    assert time.monotonic() - began < 2.0


def test_what_is_no_queue_has_no_messages_and_hides_no_others(emptied: Settings) -> None:
    broker = Broker(emptied.broker_url)
    broker.push(batch(3))
    with redis.Redis.from_url(emptied.broker_url) as server:
        server.set("another", "program's")
    assert broker.depths(["another", "actor1", "none"]) == {"another": 0, "actor1": 1, "none": 0}


def test_an_address_without_a_port_and_no_server_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.Connection, "_connect", _refused)
    with pytest.raises(ServerUnavailable, match=r"Redis at redis://127\.0\.0\.1 does not answer: .*Check that it runs"):
        Broker("redis://127.0.0.1/0").check()


def _refused(_: object) -> None:
    raise ConnectionRefusedError(111, "Connection refused")


class InAMode(Valkey):
    """A server of another mode than ours."""

    options: Sequence[str] = ()

    def _command(self) -> Sequence[str | Path]:
        ours = list(super()._command())
        del ours[ours.index("--databases") : ours.index("--databases") + 2]
        return [*ours, *self.options]


@pytest.mark.thorough
def test_a_server_in_cluster_mode_is_refused(tmp_path: Path, settings: Settings) -> None:
    """Before a worker waits for messages of several queues at once, which it refuses each time."""
    server = InAMode(tmp_path / "data", tmp_path / "log")
    server.options = ("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    try:
        server.start()
        with pytest.raises(
            ServerUnfit, match=r"runs in cluster mode, .*\. Give the address of a single server .* in REC"
        ):
            wait_for_servers(Broker(server.url).check, 60)
        app = Recovery(settings.model_copy(update={"broker_url": server.url}))
        assert check_redis(app.resources).cause is Cause.REDIS_UNFIT
    finally:
        server.stop()
