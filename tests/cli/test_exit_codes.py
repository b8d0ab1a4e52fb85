"""Commands that others' scripts ask say by their exit code that something is wrong."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from recovery import Settings
from recovery.cli.main import app
from recovery.demo.app import app as demo_app
from recovery.records import Worker
from recovery.store import Store


@pytest.fixture
def store(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A cluster whose one worker, which serves the demo's actors, does nothing."""
    for name, value in emptied.environment().items():
        monkeypatch.setenv(name, value)
    store = Store(emptied)
    store.workers.beat(Worker(id="w", name="w", host="h", pid=1, pid_started=1, queues=tuple(demo_app.actors)), 600)
    return store


@pytest.mark.usefixtures("store")
def test_of_what_was_run_not_all_has_finished() -> None:
    done = CliRunner().invoke(app, ["run", "recovery/wfformat/example.json", "--timeout", "0.01"])
    assert done.exit_code == 1, done.output
    assert "0 of 1 finished" in done.output


@pytest.mark.usefixtures("store")
def test_a_worker_does_not_answer() -> None:
    done = CliRunner().invoke(app, ["ping", "--timeout", "0.1"])
    assert done.exit_code == 1, done.output
    assert "does not answer within 0.1s" in done.output
