"""A world in which everything is as it should be, told as workers and scanners tell it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery import Recovery
from recovery.health import Check, examine
from recovery.health.beat_and_scanners import SCANNERS as SCANNER_NAMES
from recovery.health.doctor import CHECKS, SERVERS
from recovery.records import ScannerRun, Worker
from recovery.settings import Settings
from recovery.stack.servers import Valkey
from recovery.store import Store, layout
from tests.documents import database_of
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.world import World


@pytest.fixture
def world(emptied: Settings) -> World:
    """One actor, served by a worker that lives; scanners ran."""
    return well(emptied)


@pytest.fixture
def own_world(settings: Settings) -> World:
    """The same on a database of its own, whose indexes may be dropped."""
    layout.create(database_of(Store(settings)))
    return well(settings)


def well(settings: Settings) -> World:
    # What is cut off is looked at soon; that a message waits is not remarked while a test runs.
    hasty = settings.model_copy(update={"apply_timeout": 0.3, "idle_timeout": 0.4, "message_timeout": 60.0})
    world = World(settings, Recovery(hasty))

    @world.app.actor()
    def add(one: int, other: int) -> int:
        return one + other

    world.tell()
    world.store.workers.beat(worker(), 60)
    world.store.queues.polled({"add": None})
    for name in SCANNER_NAMES:
        world.store.scanners.note(ScannerRun(id=name, seconds=0.1), by_beat=True)
    return world


def worker(name: str = "w", queues: tuple[str, ...] = ("add", "sum_up")) -> Worker:
    return Worker(id=f"{name}:1", name=name, host="", pid=1, pid_started=1, queues=queues)


def asked(world: World, name: str) -> Check:
    """What the doctor says under this name. Of the other checks only those of the servers are made."""
    checks = [check for check in CHECKS if check[0] in {name, *SERVERS}]
    (check,) = [check for check in examine(world.app.resources, checks) if check.name == name]
    return check


@pytest.fixture(scope="module")
def own_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Valkey]:
    """A server whose settings may be changed."""
    folder = tmp_path_factory.mktemp("valkey")
    server = Valkey(folder / "data", Path(folder / "log"))
    server.start()
    yield server
    server.stop()
