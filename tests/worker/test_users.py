"""The users of Redis that the page on security gives: each part runs as its own, and is refused nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis
from kombu import Connection

from recovery.queue import Turns
from recovery.queue.message import UNSIGNED
from recovery.queue.untrusted import ASIDE
from recovery.settings import Settings
from recovery.stack import Stack, Valkey
from recovery.stack.server_process import free_port
from recovery.worker.messages.intake import MessageIntake
from recovery.worker.messages.transport import Channel, Transport
from tests.cli import shop
from tests.cli.command import recovery
from tests.docs.blocks import blocks

PAGE = Path(__file__).parents[2] / "docs/security.md"
APP = "tests.cli.shop:app"
NARROW = "~_kombu.* ~*.pidbox* ~recovery.* ~spark*"

FORBIDDEN = [
    *(
        "FLUSHALL",
        "FLUSHDB",
        "KEYS *",
        "SCAN 0",
        "CONFIG GET requirepass",
        "CONFIG SET dir /tmp",
        "SHUTDOWN",
        "ACL LIST",
    ),
    *("CLIENT LIST", "CLIENT KILL TYPE normal", "CLIENT PAUSE 1000", "MONITOR", "REPLICAOF NO ONE", "MODULE LIST"),
    *("EVAL 0 0", "GET spark", "SET spark x", "RENAME spark x", "DUMP spark"),
]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Valkey]:
    """A Valkey with the page's users, and their names as passwords."""
    server = Valkey(tmp_path / "data", tmp_path / "log")
    server.start()
    (rules,) = blocks(PAGE, "text")
    assert f"`{NARROW}`" in PAGE.read_text()
    rules = rules.replace(" ~* ", f" {NARROW} {' '.join(f'~{name}*' for name in shop.app.actors)} ")
    with redis.Redis.from_url(server.url) as client:
        client.execute_command("ACL", "SETUSER", "watcher", "on", ">watcher", "+@all", "~*")
    with redis.Redis.from_url(as_user(server, "watcher")) as client:
        for line in rules.splitlines():
            _, name, *rights = line.split()
            client.execute_command("ACL", "SETUSER", name, *(r.replace("…", name) for r in rights))
    yield server
    server.kill()


def as_user(server: Valkey, name: str) -> str:
    return server.url.replace("//", f"//{name}:{name}@")


def refusals(server: Valkey) -> list[Any]:
    with redis.Redis.from_url(as_user(server, "watcher"), decode_responses=True) as client:
        found = client.acl_log(100)
        return sorted({(one["username"], one["reason"], one["object"]) for one in found})


def test_a_worker_may_have_a_turn(guarded: Valkey) -> None:
    turns = Turns(as_user(guarded, "worker"), 60.0)
    assert turns.join("p", ["a"]) and not turns.join("p", ["b"])
    assert turns.go_on("p", 1, 10).waiting == ("b",)


@pytest.mark.soak
@pytest.mark.cluster
def test_each_part_has_all_that_it_needs(guarded: Valkey, stack: Stack, settings: Settings) -> None:
    def env(user: str, **more: str) -> dict[str, str]:
        changed = settings.model_copy(update={"broker_url": as_user(guarded, user), "scan_interval": 0.3})
        return changed.environment() | {"RECOVERY_APP": APP} | more

    port = free_port()
    worker = stack.start_worker(APP, concurrency=1, env=env("worker", RECOVERY_METRICS_PORT=str(port)))
    beat = stack.start_beat(APP, env=env("beat"))
    said = recovery("start", "twice", "21", "--wait", "10", env=env("client"))
    assert said.stdout.splitlines()[-1] == "84", (said, refusals(guarded))
    failed = recovery("start", "broken", "no", "--wait", "10", env=env("client")).stdout.split()[0]
    commands = [
        "doctor",
        "status",
        "actor list",
        "actor block refuse",
        "actor unblock refuse",
        f"broken restart {failed}",
    ]
    with ThreadPoolExecutor() as pool:
        done = list(pool.map(lambda command: recovery(*command.split(), env=env("operator")), commands))
    told = "\n".join(one.stdout + one.stderr for one in done if one.returncode)
    warned, *others = [one.returncode for one in done]
    assert warned <= 1 and not any(others), told  # of what is broken, or blocked just then
    ping = [
        str(Path(sys.executable).with_name("celery")),
        "-A",
        "recovery.worker.app",
        "inspect",
        "ping",
        "--timeout",
        "5",
    ]
    assert _answer(ping, env("worker")), refusals(guarded)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as metrics:
        assert b"recovery_queue_depth" in metrics.read()
    os.kill(worker.pid, signal.SIGTERM)
    worker.wait(20)
    beat.stop(20)
    # By the one the password could be read, by the other (before a SCAN) keys; `doctor` goes without.
    # Its answers to the ping of workers: for their queue an operator takes the worker's user.
    of_ping = {("operator", "command", name) for name in ("multi", "exec")}
    expected = {("operator", "command", "config|get"), ("operator", "command", "dbsize")}
    assert set(refusals(guarded)) - of_ping == expected


@pytest.mark.parametrize("user", ["worker", "beat", "client", "operator"])
def test_none_may_do_what_it_does_not_need(guarded: Valkey, user: str) -> None:
    with redis.Redis.from_url(as_user(guarded, user)) as client:
        for command in FORBIDDEN:
            with pytest.raises(redis.exceptions.NoPermissionError):
                client.execute_command(*command.split())


def test_a_worker_may_set_aside_what_is_no_queue(guarded: Valkey, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Channel, "intake", MessageIntake(["twice"], [], UNSIGNED, sweeps=False))
    tables = [f"_kombu.binding.{name}" for name in ("celery.pidbox", "recovery.nudge")]
    with redis.Redis.from_url(as_user(guarded, "watcher"), decode_responses=True) as client:
        for key in ("twice", "recovery.nudge", *tables):
            client.set(key, "theirs")
        with Connection(as_user(guarded, "worker"), transport=Transport) as connection:
            for queue in ("twice", "recovery.nudge"):
                assert connection.default_channel._size(queue) == 0
            for table in tables:
                connection.default_channel._queue_bind(table.removeprefix("_kombu.binding."), "", "", "a queue")
        assert sorted(client.get(key) or "" for key in client.scan_iter(f"*.{ASIDE}.*")) == ["theirs"] * 4
    assert refusals(guarded) == []


def _answer(command: list[str], env: Mapping[str, str]) -> str:
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout if "1 node online" in done.stdout else ""
