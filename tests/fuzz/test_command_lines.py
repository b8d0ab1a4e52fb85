"""Command lines that nobody would write: each ends with a documented exit code, and an error is one message."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from recovery.cli.main import execute
from recovery.errors import ServerError
from recovery.settings import Settings
from recovery.store import Store
from tests.fuzz.conftest import rounds
from tests.fuzz.texts import acts, nasty

COMMANDS = [
    "status", "doctor", "init", "show", "check", "start", "run", "abort", "restart",
    "worker", "beat", "up", "demo", "sweep", "ping",
    *(f"actor {one}" for one in ("list", "show", "set", "unset", "block", "unblock", "forget")),
    *(f"process-type {one}" for one in ("list", "show", "set", "unset")),
    *(f"broken {one}" for one in ("list", "show", "restart", "abort")),
    "", "actor", "nosuch",
]  # fmt: skip
OPTIONS = [
    "--json", "--app", "--wait", "--custom-id", "--type", "--actor", "--kind", "--fingerprint", "--limit", "--yes",
    "--repair", "--reason", "--queues", "--concurrency", "--pool", "--name", "--loglevel", "--workers", "--mongo-port",
    "--redis-port", "--processes", "--time-scale", "--timeout", "--seed", "--kill-every", "--for", "--chaos", "-h",
    "--version", "--nosuch", "-x", "--", "--waiting-for",
]  # fmt: skip
VALUES = [
    "", "0", "-1", "1", "nan", "inf", "-inf", "1e-300", "1e400", "9" * 30, "9" * 5000, "1.5", "true", "None", "double",
    "twice", "recovery.nudge", "tests.cli.shop:app", "..:x", "a:b", "[" * 5000, '{"$gt": ""}', '{"a": ' * 2000,
    "/dev/zero",
    "/dev/null", "README.md", ".", "worker_timeout=90s", "worker_timeout=", "worker_timeout=1e-300", "idle_timeout=nan",
    "max_work_timeouts=" + "9" * 5000, "requeue_rate=0.1/s", "nosuch=1", "=", "f" * 32, "f" * 32 + "/start", "a/b/c",
    "\udcff", "prefork", "x" * 100_000,
]  # fmt: skip


def command_line(draw: random.Random) -> list[str]:
    made = draw.choice(COMMANDS).split()
    for _ in range(draw.randrange(5)):
        if draw.random() < 0.4:
            made.append(draw.choice(OPTIONS))
        value = draw.choice(VALUES) if draw.random() < 0.7 else nasty(draw).replace("\0", "")
        made.append(value)
    if draw.random() < 0.1:
        draw.shuffle(made)
    return made


@pytest.fixture
def harmless(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Servers that answer; what would start others, or become another program, ends where it would."""

    def not_here(*_args: object, **_options: object) -> None:
        raise ServerError("not started in a test")

    for name, value in emptied.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RECOVERY_APP", "tests.cli.shop:app")
    for where in ("recovery.cli.worker_commands.os.execve", "recovery.stack.Stack", "recovery.demo.run.run"):
        monkeypatch.setattr(where, not_here)
    monkeypatch.setattr("recovery.sweep.sweep", not_here)
    monkeypatch.setattr("recovery.cli.server_commands.signal.signal", lambda *_: None)
    # It answers: to ask each time takes most of the time.
    monkeypatch.setattr("recovery.store.check_server", lambda *_, **__: None)
    monkeypatch.setattr("recovery.cli.start_commands.LOOK_EVERY", 0.0)
    monkeypatch.setattr("recovery.queue.remote.answers", lambda *_: False)
    return emptied


@rounds(ci=30, soak=8000)
def test_every_command_line_ends_well(
    rounds: int, seed: int, harmless: Settings, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recovery.cli.start_commands.time", Impatient())
    draw = random.Random(seed)
    before: Callable[[], dict[str, int]] = lambda: {  # noqa: E731
        name: Store(harmless).database[name].estimated_document_count() for name in ("processes", "actors")
    }
    for _ in range(rounds):
        line, had = command_line(draw), before()
        code = execute(line)
        out, err = capfd.readouterr()
        assert code in (0, 1, 2, 3), line
        assert "Traceback" not in out + err, (line, err)
        assert acts(out + err) is None, (line, acts(out + err))
        if code == 2:
            assert err.startswith("error: ") or "Usage: " in out, (line, out, err)
            assert before() == had, line


class Impatient:
    """A clock by which whoever waits has waited long enough."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 1e12
        return self._now
