"""What all tests share: one stack of real servers per run, and a database of its own for each test."""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import tempfile
import uuid
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import redis
from pymongo import MongoClient
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from recovery.engine import Registrar
from recovery.metrics import registry
from recovery.settings import Settings, load
from recovery.stack import Stack
from tests import durations
from tests.built_once import build_commands_once
from tests.preloaded import process

gc.disable()  # all that is imported stays
build_commands_once()
process.install()

_tests = itertools.count()
# Valkey's own limit without configuration.
_REDIS_DATABASES = 16
_ON_SPARK = "tests/sweep/"
REGISTERED_TIMEOUT = 5.0
"""Seconds until a test's starts are registered: a thousand times what that takes."""
SKIP_NOTHING = "TESTS_SKIP_NOTHING"
NOTHING_TO_TEST = ("the first leaves nothing", "no folder shared/data")
"""How reasons begin for which a test is skipped wherever it runs."""


def _scope(nodeid: str) -> str:
    """Return the group of tests that run in one process: a file, or all that share Spark's session and its JVM."""
    file = nodeid.partition("::")[0]
    return _ON_SPARK if file.startswith(_ON_SPARK) else file


class _ByScope(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
    def _split_scope(self, nodeid: str) -> str:
        return _scope(nodeid)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-durations", action="store_true", help="write tests/durations.json")
    parser.addoption("--write-table", action="store_true", help="write the table of reasons into docs/retry.md")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--record-durations") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(durations.Recorder())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return _ByScope(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # one process alone takes them as they are given
        durations.order(items, _scope)


def pytest_collection_finish() -> None:
    """Thousands of tests are no garbage: they are not looked through again and again while these run."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, None]:
    """Where all is to be there that a test may need, as in CI, one that is skipped for something else has failed."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get(SKIP_NOTHING) and isinstance(report.longrepr, tuple):
        *_, reason = report.longrepr
        if not reason.removeprefix("Skipped: ").startswith(NOTHING_TO_TEST):
            report.outcome, report.longrepr = "failed", f"{reason}; and {SKIP_NOTHING} is set"


_registrars = WeakSet[Registrar]()
_start_thread = Registrar._start_thread


def _start_noted(self: Registrar) -> bool:
    _registrars.add(self)
    return _start_thread(self)


Registrar._start_thread = _start_noted  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Wait until every process that the test started is registered, so that nothing is inserted into the database of
    the next test. If the test stopped its server, the wait ends after the timeout."""
    for registrar in list(_registrars):
        registrar.wait(REGISTERED_TIMEOUT)


@pytest.fixture(autouse=True)
def no_strangers() -> None:
    """Names that other tests made up take no room from those of this one."""
    registry._strangers.clear()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Real servers, in a path with a space. Tests that kill a server must start it again."""
    data_dir = tmp_path_factory.mktemp("the stack")
    with Stack(data_dir) as servers:
        yield servers
    # pytest keeps the folders of three runs; of ours the logs are enough.
    for data in ("mongod", "valkey"):
        shutil.rmtree(data_dir / data)


def forget_metrics(pids: Iterable[int]) -> None:
    """Remove what the next worker to start here would remove of these, which are killed."""
    for pid in pids:
        for left in Path(tempfile.gettempdir()).glob(f"recovery-metrics-{pid}-*"):
            shutil.rmtree(left)


@pytest.fixture
def settings(stack: Stack) -> Iterator[Settings]:
    """Settings with an empty database and an empty broker. Workers that the test started end with it."""
    broker_url = f"{stack.broker_url.rpartition('/')[0]}/{next(_tests) % _REDIS_DATABASES}"
    with redis.Redis.from_url(broker_url) as broker:
        broker.flushdb()
    database = f"test_{uuid.uuid4().hex[:12]}"
    yield load(mongo_uri=stack.mongo_uri, broker_url=broker_url, database=database)
    # Not stopped: that takes seconds, and the tests that are about it wait for it themselves.
    pids = [worker.pid for worker in stack.workers]
    stack.kill_workers()
    forget_metrics(pids)
    with MongoClient[dict[str, object]](stack.mongo_uri) as client:
        client.drop_database(database)
