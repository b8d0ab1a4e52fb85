"""Real servers: started, killed, started again on their data, and never left behind."""

from __future__ import annotations

import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from recovery.errors import DataDirectoryError, InputError, PortTaken, ServerUnavailable
from recovery.settings import Settings
from recovery.stack import Mongod, Stack, Valkey, datadir
from recovery.stack import server_process as server
from recovery.stack.server_process import HOST, free_port, is_free
from tests.preloaded.process import NEVER
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data with spaces"


@pytest.fixture
def mongod(data_dir: Path) -> Iterator[Mongod]:
    mongod = Mongod(data_dir / "mongod", data_dir / "logs" / "mongod.log", cache_gb=0.25)
    yield mongod
    mongod.kill()


@pytest.fixture
def valkey(data_dir: Path) -> Iterator[Valkey]:
    valkey = Valkey(data_dir / "valkey", data_dir / "logs" / "valkey.log")
    yield valkey
    valkey.kill()


def client(mongod: Mongod) -> MongoClient[dict[str, Any]]:
    return MongoClient(mongod.uri, serverSelectionTimeoutMS=10_000)


def test_a_whole_life(data_dir: Path) -> None:
    with Stack(data_dir, mongo_cache_gb=0.25) as stack:
        assert [stat.S_IMODE(folder.stat().st_mode) for folder in (data_dir, data_dir / "mongod")] == [0o700] * 2
        assert stack.mongod and stack.valkey
        assert stack.environment() == {
            "RECOVERY_MONGO_URI": stack.mongo_uri,
            "RECOVERY_BROKER_URL": stack.broker_url,
        }
        ports = [stack.mongod.port, stack.valkey.port]
        with MongoClient[dict[str, Any]](stack.mongo_uri) as mongo:
            mongo.db.things.insert_one({"_id": 1})
        with redis.Redis.from_url(stack.broker_url) as broker:
            broker.set("key", "value")
    assert all(is_free(port) for port in ports)

    with Stack(data_dir, mongo_cache_gb=0.25) as again:
        assert again.mongo_uri != stack.mongo_uri, "the point is that the data moves to another port"
        with MongoClient[dict[str, Any]](again.mongo_uri) as mongo:
            assert mongo.db.things.find_one() == {"_id": 1}
        with redis.Redis.from_url(again.broker_url) as broker:
            assert broker.get("key") == b"value"
    assert {path.name for path in (data_dir / "logs").iterdir()} == {"mongod.log", "valkey.log"}


@pytest.mark.thorough
def test_killed_mongod_keeps_what_it_acknowledged(mongod: Mongod) -> None:
    mongod.start()
    with client(mongod) as mongo:
        mongo.db.things.insert_one({"_id": 1})
        mongod.kill()
        assert not mongod.running
        mongod.start()
        assert mongo.db.things.find_one() == {"_id": 1}
        first = mongod.child
        mongod.start()
        assert mongod.child is first


def test_killed_valkey_comes_back_on_its_port(valkey: Valkey) -> None:
    valkey.start()
    with redis.Redis.from_url(valkey.url) as broker:
        broker.set("key", "value")
        # Fsync is once a second, but a killed process (not machine) loses nothing that it has written.
        valkey.kill()
        with pytest.raises(redis.ConnectionError):
            broker.ping()
        valkey.start()
        assert broker.get("key") == b"value"
        valkey.stop()
        valkey.start()
        assert broker.get("key") == b"value"


def test_frozen_valkey_is_waited_for(valkey: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "START_TIMEOUT", 0.1)
    monkeypatch.setattr(Valkey, "_ready", lambda _self: False)
    with pytest.raises(ServerUnavailable, match=r"is not ready 0\.1 s after its start"):
        valkey.start()
    assert not valkey.running


def test_second_server_on_the_same_data_is_refused(
    valkey: Valkey, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datadir, "_LOCKED_TIMEOUT", 0.1)
    valkey.start()
    with pytest.raises(DataDirectoryError, match="is in use by another valkey"):
        Valkey(valkey.directory, data_dir / "log").start()


def test_foreign_data_is_refused_and_nothing_runs(data_dir: Path) -> None:
    (data_dir / "mongod").mkdir(parents=True)
    (data_dir / "mongod" / "WiredTiger").touch()
    stack = Stack(data_dir)
    with pytest.raises(DataDirectoryError, match="mongod is not empty"):
        stack.start()
    assert stack.valkey and not stack.valkey.running


@pytest.mark.thorough
def test_port_taken(data_dir: Path) -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"valkey can't listen on 127\.0\.0\.1:{port}"):
            Stack(data_dir, redis_port=port).start()


def test_given_port_is_used(data_dir: Path) -> None:
    port = free_port()
    with Stack(data_dir, redis_port=port, mongo_uri="mongodb://elsewhere") as stack:
        assert stack.broker_url == f"redis://127.0.0.1:{port}/0"
        assert (stack.mongod, stack.mongo_uri) == (None, "mongodb://elsewhere")


def test_given_servers_are_used_and_nothing_is_started(data_dir: Path) -> None:
    with Stack(data_dir, mongo_uri="mongodb://m", broker_url="redis://r") as stack:
        assert stack.environment() == {
            "RECOVERY_MONGO_URI": "mongodb://m",
            "RECOVERY_BROKER_URL": "redis://r",
        }
    assert not data_dir.exists()


@pytest.mark.thorough
def test_mongod_that_fails_shows_why(mongod: Mongod) -> None:
    mongod.start()
    mongod.stop()
    (mongod.directory / "WiredTiger.turtle").write_text("damaged")
    with pytest.raises(ServerUnavailable, match=r"ended with code -?\d+ while starting") as caught:
        mongod.start()
    assert "WiredTiger" in str(caught.value)
    assert str(mongod.log) in str(caught.value)


OWNER = """
import os, sys
from recovery.stack import Stack
with Stack(sys.argv[1], mongo_cache_gb=0.25) as stack:
    worker = stack.start_worker("no.such:app")
    print(stack.mongod.child.pid, stack.valkey.child.pid, worker.pid, flush=True)
    sys.stdin.read()
"""


@pytest.mark.thorough
def test_killed_owner_leaves_no_server_and_the_next_can_start(data_dir: Path) -> None:
    command, pipe = [sys.executable, "-c", OWNER, str(data_dir)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as owner:
        assert owner.stdout
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        assert len(pids) == 3
        owner.kill()
    # At once: it waits until the servers, which the guard is just killing, have let go of the data.
    with Stack(data_dir, mongo_cache_gb=0.25):
        wait_until(lambda: not any(map(psutil.pid_exists, pids)), 10, "the end of the servers")


@pytest.mark.parametrize("end", [Stack.stop_workers, Stack.kill_workers])
def test_worker_gets_its_options_and_the_servers(
    stack: Stack,
    settings: Settings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    end: Callable[[Stack], None],
) -> None:
    """The worker itself is tested elsewhere; here a module of its name writes down what it was given."""
    (tmp_path / "recovery").mkdir()
    (tmp_path / "recovery" / "__init__.py").touch()
    (tmp_path / "recovery" / "__main__.py").write_text(
        "import os, sys, time\n"
        "print(*sys.argv[1:], flush=True)\n"
        "print(os.environ['RECOVERY_MONGO_URI'], os.environ['RECOVERY_BROKER_URL'], flush=True)\n"
        "time.sleep(600)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(NEVER, "1")
    env = {"RECOVERY_BROKER_URL": settings.broker_url}
    worker = stack.start_worker("shop:app", concurrency=3, queues=["a", "b"], name=end.__name__, env=env)
    beat = stack.start_beat("shop:app")
    wait_until(lambda: len(worker.last_lines() + beat.last_lines()) == 4, 10, "what they were given")
    assert worker.log == stack.log(end.__name__) == stack.data_dir / "logs" / f"{end.__name__}.log"
    assert worker.last_lines() == [
        f"worker --app shop:app --concurrency 3 --name {end.__name__} --queues a,b",
        f"{stack.mongo_uri} {settings.broker_url}",
    ]
    assert beat.last_lines()[0] == "beat --app shop:app"
    end(stack)
    assert not worker.running and not beat.running
    assert stack.workers == []


def test_name_that_is_no_file_name(stack: Stack) -> None:
    with pytest.raises(InputError, match="without '/'"):
        stack.start_worker("shop:app", name="a/b")


def test_settings_are_of_an_empty_database(settings: Settings) -> None:
    with MongoClient[dict[str, Any]](settings.mongo_uri) as mongo:
        assert mongo[settings.database].list_collection_names() == []
    with redis.Redis.from_url(settings.broker_url) as broker:
        assert broker.dbsize() == 0


@pytest.mark.parametrize(
    "expression",
    [
        {"$where": "true"},
        {"$expr": {"$function": {"body": "function() { return true; }", "args": [], "lang": "js"}}},
    ],
)
def test_no_script_is_run(stack: Stack, expression: dict[str, Any]) -> None:
    """Whoever may read could have MongoDB run one else, for as long as it takes."""
    with MongoClient[dict[str, Any]](stack.mongo_uri) as client:
        client.scripts.things.insert_one({})
        with pytest.raises(OperationFailure):
            client.scripts.things.find_one(expression)
        client.drop_database("scripts")


def test_messages_compressed_by_zlib_are_not_taken(stack: Stack) -> None:
    with MongoClient[Any](stack.mongo_uri) as client:
        assert client.admin.command("hello", compression=["zlib", "snappy"])["compression"] == ["snappy"]
