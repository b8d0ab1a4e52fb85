"""What the environment says to Celery changes nothing of our Celery applications."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recovery import Recovery
from recovery.queue.celery_app import OwnCelery, ignored_variables
from recovery.queue.redis_connection import celery_settings
from recovery.queue.remote import _control
from recovery.settings import Settings
from recovery.stack import Stack
from recovery.stack.server_process import free_port
from tests.cli import shop
from tests.cli.command import ROOT, environment

OURS = "redis://127.0.0.1:6379/3"
OURS_SHOWN = "redis://:**@127.0.0.1:6379/3"
THEIRS = "redis://their.example:6380/7"
CONFIGURATION = f"""
broker_url = broker_read_url = broker_write_url = {THEIRS!r}
result_backend = {THEIRS!r}
task_always_eager = True
task_serializer = "pickle"
"""
LOADER = """
from celery.loaders.app import AppLoader


class Loader(AppLoader):
    def read_configuration(self, env=""):
        return {"task_always_eager": True}
"""
BROKERS = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL", "CELERY_RESULT_BACKEND")


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What another program's Celery is told by the environment."""
    (tmp_path / "their_config.py").write_text(CONFIGURATION)
    (tmp_path / "their_loader.py").write_text(LOADER)
    monkeypatch.syspath_prepend(str(tmp_path))
    told = {"CELERY_CONFIG_MODULE": "their_config", "CELERY_LOADER": "their_loader:Loader"}
    told |= dict.fromkeys(BROKERS, THEIRS)
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    return told


@pytest.mark.usefixtures("theirs")
def test_the_environment_names_no_other_broker_and_no_settings() -> None:
    with OwnCelery(set_as_current=False) as app:
        app.conf.update(celery_settings(OURS))
        for connection in (app.connection(), app.connection_for_read(), app.connection_for_write()):
            assert connection.as_uri() == OURS_SHOWN
        assert app.pool.connection.as_uri() == OURS_SHOWN
        assert not app.conf.task_always_eager and app.conf.task_serializer == "json"
        assert type(app.backend).__name__ == "DisabledBackend"


@pytest.mark.usefixtures("theirs")
def test_remote_control_asks_our_broker() -> None:
    with _control(OURS) as (_, connection):
        assert connection.as_uri() == OURS_SHOWN


def test_what_is_ignored_is_named(theirs: dict[str, str]) -> None:
    assert ignored_variables() == sorted(theirs)
    assert ignored_variables({"CELERY_WORKER_POOL": "solo", "CELERY_BROKER_URL": "", "SHOP": "1"}) == [
        "CELERY_WORKER_POOL"
    ]


RUNS_CELERY = """
import json, sys
from celery.bin import worker
from celery.bin.celery import celery
told = {}
worker.worker.callback = lambda **options: told.update(options)
try:
    celery.main(["-A", "recovery.worker.app", "worker"], auto_envvar_prefix="CELERY")
except SystemExit:
    pass
print(json.dumps({"concurrency": told["concurrency"], "purge": told["purge"]}))
"""


@pytest.mark.thorough
def test_options_of_a_worker_are_not_taken_from_the_environment() -> None:
    meant_for_another = {"CONCURRENCY": "77", "PURGE": "1"}
    env = environment({f"CELERY_WORKER_{name}": value for name, value in meant_for_another.items()})
    done = subprocess.run(
        [sys.executable, "-c", RUNS_CELERY],
        env=env | {"RECOVERY_APP": "tests.cli.shop:app"}, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {"concurrency": len(os.sched_getaffinity(0)), "purge": False}
    assert "CELERY_WORKER_CONCURRENCY, CELERY_WORKER_PURGE: set for Celery" in done.stderr


@pytest.mark.thorough
def test_a_remapped_sigterm_is_refused_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "recovery", "worker", "--app", "tests.cli.shop:app"],
        env=environment({"REMAP_SIGTERM": "SIGQUIT"}), cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: REMAP_SIGTERM=SIGQUIT: ")


@pytest.mark.cluster
def test_a_worker_takes_messages_from_our_redis(stack: Stack, settings: Settings) -> None:
    """Nobody listens where the environment sends Celery."""
    elsewhere = f"redis://127.0.0.1:{free_port()}/0"
    env = settings.environment() | dict.fromkeys(BROKERS, elsewhere) | {"CELERY_WORKDIR": "/", "CELERY_VERSION": "5.7"}
    worker = stack.start_worker("tests.cli.shop:app", env=env)
    app = Recovery(settings)
    app.actors = shop.app.actors
    assert app.result(app.start("twice", 21), timeout=30) == 84
    assert (
        "CELERY_BROKER_READ_URL, CELERY_BROKER_URL, CELERY_BROKER_WRITE_URL, CELERY_RESULT_BACKEND: set for Celery"
        in stack.log(worker.name).read_text()
    )
