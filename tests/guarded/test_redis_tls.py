"""A Redis that speaks TLS by itself, with the configuration and the users of the pages. Debian's, since the Valkey that
all other tests run on is built without."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.errors import RecoveryError
from recovery.queue import Broker
from recovery.stack import Stack
from recovery.stack.child import ChildProcess
from recovery.stack.server_process import HOST, free_port
from tests.cli.command import ROOT, environment, recovery
from tests.docs.blocks import DOCS, blocks
from tests.guarded.cluster import APP
from tests.guarded.servers import PAGE, Servers
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def port(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where it listens."""
    folder, port = tmp_path_factory.mktemp("redis"), free_port()
    (config,) = (block for block in blocks(DOCS / "tls.md", "text") if block.startswith("port 0"))
    files = {"redis.pem": servers.server.cert, "redis.key": servers.server.key, "ca.pem": servers.authority.cert}
    for name, file in files.items():
        shutil.copy(file, folder / name)
    (folder / "redis.conf").write_text(config.replace("tls-port 6379", f"tls-port {port}\nbind {HOST}\nsave ''"))
    (rules,) = blocks(PAGE, "text")
    (folder / "users.acl").write_text("".join(user(line, servers) for line in rules.splitlines()))
    server = ChildProcess("redis", [program(folder), "redis.conf"], folder / "redis.log", cwd=folder, env={})
    wait_until(lambda: "Ready to accept connections" in server.log.read_text() or not server.running, 10, "Redis")
    assert server.running, "\n".join(server.last_lines())
    yield port
    server.kill_group()


def program(folder: Path) -> Path:
    """The server, as Debian's redis-tools have it: one program that is what it is called by."""
    found = shutil.which("redis-check-rdb")
    if found is None:
        pytest.skip("needs Debian's redis-tools")
    made = folder / "redis-server"
    made.symlink_to(Path(found).resolve())
    said = subprocess.run([made, "--version"], capture_output=True, text=True, check=False).stdout
    if not said.startswith("Redis server"):
        pytest.skip(f"needs a redis-check-rdb that is the server as well, as Debian's is: {found}")
    return made


def user(line: str, servers: Servers) -> str:
    """A line of the page, with the hash of this user's password."""
    mark = servers.marks.get(f"redis {line.split()[1]}")
    secret = hashlib.sha256(mark.text.encode()).hexdigest() if mark else ""
    return line.replace(">…", f"#{secret}") + "\n"


def test_a_process_runs_to_its_end(servers: Servers, port: int, tmp_path: Path) -> None:
    def env(name: str) -> dict[str, str]:
        changes = {"RECOVERY_BROKER_URL": servers.broker_url(name, port), "RECOVERY_APP": APP}
        return environment(servers.environment(name) | changes | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)})

    stack = Stack(tmp_path, mongo_uri=servers.mongo_uri("worker"), broker_url=servers.broker_url("worker", port))
    try:
        worker = stack.start_worker(APP, concurrency=1, env=env("worker"))
        beat = stack.start_beat(APP, env=env("beat"))
        done = recovery("start", "twice", "21", "--wait", "60", env=env("client"))
        assert done.stdout.splitlines()[-1] == "84", (done, worker.last_lines(), beat.last_lines())
        checks = recovery("doctor", env=env("operator"))
        assert re.search(r"^ *OK +redis .*Redis 7", checks.stdout, re.MULTILINE), checks
    finally:
        stack.kill_workers()


def test_nobody_comes_in_without_a_certificate(servers: Servers, port: int) -> None:
    address = re.sub(r"&?ssl_(certfile|keyfile)=[^&]*", "", servers.broker_url("worker", port))
    with pytest.raises(RecoveryError, match=r"ssl_certfile=FILE"):
        Broker(address).check()


def test_a_wrong_password_is_refused(servers: Servers, port: int) -> None:
    address = servers.broker_url("worker", port, secret=servers.marks["redis beat"])
    with pytest.raises(RecoveryError, match="invalid username-password pair"):
        Broker(address).check()
