"""Errors of a real Valkey, as redis-py raises them: what they are, and what becomes of them."""

from __future__ import annotations

import pytest
import redis

from recovery.queue.redis_connection import ours
from recovery.retry.in_place import by_driver
from recovery.settings import Settings
from tests.retry.caught import caught
from tests.retry.outcome import Outcome, outcome
from tests.retry.real_valkey import Own, busy, client, killed_in_mid_command
from tests.retry.real_valkey import valkey as valkey
from tests.waiting import wait_until

pytestmark = pytest.mark.thorough

LOADING = Outcome.passes("REDIS_IS_LOADING", "REDIS_LOADING")
READ_ONLY = Outcome.passes("REDIS_IS_READ_ONLY", "REDIS_READ_ONLY")
NO_MEMORY = Outcome.passes("REDIS_HAS_NO_MEMORY", "REDIS_OUT_OF_MEMORY")
BUSY = Outcome.passes("REDIS_RUNS_A_SCRIPT", "REDIS_BUSY")
AWAY = Outcome.passes("REDIS_REFUSED", "NODE_NOT_AVAILABLE")
TOO_MANY = Outcome.passes("REDIS_HAS_TOO_MANY_CLIENTS", "SERVER_OVERLOADED")
LOST = Outcome.in_flight("REDIS_CONNECTION_LOST", "SOCKET_CLOSED_WHILE_IN_FLIGHT")
TIMED_OUT = Outcome.in_flight("REDIS_TIMED_OUT", "TIMEOUT_IN_FLIGHT")
DENIED = Outcome.stays("REDIS_DENIED")
REFUSED = Outcome.stays("REDIS_REFUSES_THIS")


def seen(error: Exception) -> Outcome:
    """By the catalogues, and by those for our own calls: through the queue's translation the same."""
    assert isinstance(error, redis.RedisError)
    said = outcome(error)
    translated = ours(error)
    translated.__cause__ = error
    assert outcome(translated, by_driver) == said
    return said


def test_it_is_loading(valkey: Own) -> None:
    valkey.restart_slowly()
    with client(valkey) as asking:
        assert seen(caught(lambda: asking.get("last"))) == LOADING


def test_it_is_a_replica(valkey: Own, settings: Settings) -> None:
    host, port = settings.broker_url.removeprefix("redis://").partition("/")[0].split(":")
    with client(valkey) as asking:
        asking.replicaof(host, port)
        assert seen(caught(lambda: asking.set("key", 1))) == READ_ONLY


def test_its_disk_takes_no_writes(valkey: Own) -> None:
    """It says so to every write once it could not save what it has."""
    valkey.kill()
    valkey.options = ("--dbfilename", "taken")
    valkey.start()
    with client(valkey) as asking:
        asking.config_set("appendonly", "no")
        asking.config_set("save", "1 1")
        (valkey.directory / "taken" / "full").mkdir(parents=True)  # where it would put its file
        asking.set("key", 1)

        def fails() -> bool:
            return asking.info("persistence")["rdb_last_bgsave_status"] == "err"

        wait_until(fails, 20, "a save that fails")
        assert seen(caught(lambda: asking.set("key", 2))) == READ_ONLY


def test_it_is_out_of_memory(valkey: Own) -> None:
    with client(valkey) as asking:
        asking.config_set("maxmemory", "1mb")
        with asking.pipeline() as pipeline:
            pipeline.set("key", "x" * 2_000_000)
            assert seen(caught(pipeline.execute)) == NO_MEMORY
        assert seen(caught(lambda: asking.set("key", "x" * 2_000_000))) == NO_MEMORY


def test_it_runs_a_script(valkey: Own) -> None:
    assert seen(busy(valkey)) == BUSY


def test_it_is_killed_in_mid_command(valkey: Own) -> None:
    with client(valkey) as asking:
        asking.ping()
        assert seen(killed_in_mid_command(valkey)) == LOST
        assert seen(caught(lambda: asking.get("key"))) in (LOST, AWAY), "of a connection that was there"
        assert seen(caught(lambda: asking.get("key"))) == AWAY


def test_it_is_frozen(valkey: Own) -> None:
    with client(valkey, socket_timeout=0.1) as asking:
        asking.ping()
        valkey.freeze()
        assert seen(caught(lambda: asking.get("key"))) == TIMED_OUT
        valkey.thaw()


def test_it_takes_no_more_clients(valkey: Own) -> None:
    with client(valkey) as asking, client(valkey) as other:
        asking.config_set("maxclients", 1)
        assert seen(caught(other.ping)) == TOO_MANY


def test_it_refuses_a_login(settings: Settings) -> None:
    url = settings.broker_url.replace("redis://", "redis://nobody:secret@")
    with redis.Redis.from_url(url) as asking:
        assert seen(caught(asking.ping)) == DENIED


def test_it_does_not_let_this_user_do_it(valkey: Own) -> None:
    with client(valkey) as asking:
        asking.execute_command("ACL", "SETUSER", "reader", "on", ">secret", "~*", "+get")
    with client(valkey, username="reader", password="secret") as reader:
        assert reader.get("key") is None
        assert seen(caught(lambda: reader.set("key", 1))) == DENIED


def test_what_is_wrong_with_the_call(valkey: Own) -> None:
    with client(valkey) as asking:
        asking.set("key", 1)
        assert seen(caught(lambda: asking.lpush("key", 1))) == REFUSED
