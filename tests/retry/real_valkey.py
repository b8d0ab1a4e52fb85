"""A real Valkey that tests may do anything to."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from recovery.stack.servers import Valkey
from tests.retry.caught import caught
from tests.waiting import wait_until


class Own(Valkey):
    """One that counts as started once it answers, whatever that is."""

    options: Sequence[str] = ()

    def restart_slowly(self) -> None:
        """Have it end, and begin again with so many keys that it reads them for seconds."""
        with client(self) as asking:
            with asking.pipeline(transaction=False) as pipeline:
                for n in range(20_000):
                    pipeline.set(f"key {n}", "x")
                pipeline.execute()
            asking.config_set("appendfsync", "always")
            asking.set("last", 1)
        self.kill()
        self.options = ("--key-load-delay", "200")  # µs; it looks at its connections after each 1,024 keys
        self.start()

    def _command(self) -> Sequence[str | Path]:
        return [*super()._command(), *self.options]

    def _ready(self) -> bool:
        with client(self) as asking:
            try:
                return bool(asking.ping())
            except redis.BusyLoadingError:
                return True
            except redis.RedisError:
                return False


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[Own]:
    server = Own(tmp_path / "data", tmp_path / "valkey.log")
    server.start()
    try:
        yield server
    finally:
        server.kill()


def client(server: Valkey, **options: object) -> redis.Redis:
    """As ours are: it tries nothing again."""
    return redis.Redis.from_url(server.url, retry=Retry(NoBackoff(), 0), **{"socket_timeout": 5.0} | options)


def busy(valkey: Valkey) -> Exception:
    """Return the error of a command that is sent while a script runs."""
    with client(valkey) as running, client(valkey) as asking:
        asking.config_set("lua-time-limit", 10)
        endless = threading.Thread(target=lambda: caught(lambda: running.eval("while true do end", 0)))
        endless.start()
        found: list[Exception] = []

        def is_busy() -> bool:
            try:
                asking.get("key")
            except redis.ResponseError as error:
                found.append(error)
            return bool(found)

        wait_until(is_busy, 20, "the script")
        asking.script_kill()
        endless.join(10)
    return found[0]


def killed_in_mid_command(valkey: Valkey) -> Exception:
    """Return the error of a command during which the server was killed."""
    with client(valkey, socket_timeout=None) as waiting:
        errors: list[Exception] = []
        blocked = threading.Thread(target=lambda: errors.append(caught(lambda: waiting.blpop(["key"], 60))))
        with client(valkey) as asking:
            blocked.start()
            wait_until(lambda: asking.info("clients")["blocked_clients"] == 1, 20, "the command")
            valkey.kill()
            blocked.join(10)
    return errors[0]
