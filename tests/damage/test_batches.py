"""Damaged records hold up nobody: each process ends with its right result, or is reported with what is wrong."""

from __future__ import annotations

import io
import logging
import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from recovery import Recovery, Settings
from recovery.cli.main import execute
from recovery.stack import Stack
from recovery.store import layout
from tests.damage.app import app as served
from tests.damage.batch import Batch
from tests.damage.beside import Beside
from tests.documents import database_of
from tests.waiting import wait_until

APP = "tests.damage.app:app"
SEEDS = (1, 31)
"""Seeds that have found something, among others: what each found has a test of its own, too."""
OF_BESIDE = 12
"""A seed that has found something of schedules and operations."""
VICTIMS, SOUND = 100, 12
NAMED_WITHIN = 25.0
"""Seconds, with time-outs that are thirty times shorter than by default."""
WRITES_AT_REST = 60.0
"""Updates a second, at most, of which a cluster at rest does some twenty: none is repaired again and again."""
LOOKED = 2.0
OF_ACTORS = "tests/damage/app.py"
"""In the stacks that are logged of what the application's own actors raise."""


@pytest.fixture
def quick(settings: Settings) -> Settings:
    short = {"scan_interval": 0.3, "message_timeout": 1.0, "apply_timeout": 0.5, "idle_timeout": 2.0}
    return settings.model_copy(update={**short, "heartbeat_interval": 0.5, "heartbeat_timeout": 3.0})


def run(stack: Stack, settings: Settings, folder: Path, seed: int, count: int) -> Counter[str]:
    """Run a batch. Return how many processes came to which end."""
    batch = Batch(settings, folder, seed)
    layout.create(database_of(batch.app.resources.store))
    env = settings.environment()
    worker = stack.start_worker(APP, concurrency=count // 4, pool="threads", env=env)
    beat = stack.start_beat(APP, env=env)
    wait_until(lambda: batch.database["workers"].count_documents({}), 30, "a worker")
    batch.app.resources.store.actors.block("held")
    batch.start(count, SOUND)
    batch.damage()
    batch.damage_beside(5)
    batch.go()
    told = f"seed {seed}, beside {[str(one) for one in batch.beside]}"
    left = batch.wait(NAMED_WITHIN)
    assert not left, f"{told}:\n" + "\n".join(map(str, left))
    assert not list(tracebacks("".join(stack.log(child.name).read_text() for child in (worker, beat)))), told
    for said in commands(settings, batch):
        assert "Traceback" not in said, f"{told}: {said}"
    assert writes_per_second(batch) < WRITES_AT_REST, told
    return Counter(one.end.partition(":")[0] for one in batch.victims)


def tracebacks(log: str) -> Iterator[str]:
    for found in re.finditer(r"Traceback \(most recent.*\n(?:[ \t].*\n)+.*", log):
        if OF_ACTORS not in found[0]:
            yield found[0]


def commands(settings: Settings, batch: Batch) -> Iterator[str]:
    """Yield what commands say that look at records."""
    some = batch.chance.sample(batch.victims, 8)
    lines = [[word, one.id] for one in some for word in ("show", "check")]
    lines += [["find", "type:order"], ["list"], ["status"], ["doctor"], ["broken", "list"], ["actor", "list"]]
    lines += [["process-type", "list"], ["marker", "list"], ["search", "list"], ["audit"]]
    for line in lines:
        for more in ([], ["--json"]):
            yield f"{line}: {said_by(settings, [*line, *more])}"


def said_by(settings: Settings, line: list[str]) -> str:
    """Return what a command says."""
    told = io.StringIO()
    handlers = patch.object(logging.getLogger(), "handlers", [logging.StreamHandler(told)])
    environment = patch.dict("os.environ", settings.environment())
    with environment, handlers, redirect_stdout(told), redirect_stderr(told):
        execute(line)
    return told.getvalue()


def writes_per_second(batch: Batch) -> float:
    def updates() -> Any:
        return batch.database.client.admin.command("serverStatus")["opcounters"]["update"]

    before, looks = updates(), set[Any]()

    def looked() -> bool:
        looks.add(batch.database.command("ping")["operationTime"].time)
        return len(looks) > LOOKED

    wait_until(looked, 30, "two seconds of the database's clock")
    return float(updates() - before) / LOOKED


@pytest.mark.cluster
@pytest.mark.parametrize("seed", SEEDS)
def test_each_ends_well_or_is_named(stack: Stack, quick: Settings, tmp_path: Path, seed: int) -> None:
    ends = run(stack, quick, tmp_path, seed, VICTIMS)
    assert ends["finished with its result"] > VICTIMS / 2, ends


def run_beside(stack: Stack, settings: Settings, seed: int) -> Counter[str]:
    """Damage schedules and operations that are under way. Return how many came to which end."""
    app = Recovery(settings)
    app.actors = served.actors
    database = database_of(app.resources.store)
    layout.create(database)
    env = settings.environment()
    worker = stack.start_worker(APP, concurrency=8, pool="threads", env=env)
    beat = stack.start_beat(APP, env=env)
    wait_until(lambda: database["workers"].count_documents({}), 30, "a worker")
    beside = Beside(app, database, seed)
    beside.begin()
    beside.damage()
    left = beside.wait(NAMED_WITHIN)
    assert not left, f"seed {seed}:\n" + "\n".join(map(str, left))
    logs = "".join(stack.log(child.name).read_text() for child in (worker, beat))
    assert not list(tracebacks(logs)), f"seed {seed}"
    for line in (["schedule", "list"], ["operation", "list"], ["doctor"]):
        for more in ([], ["--json"]):
            said = said_by(settings, [*line, *more])
            assert "Traceback" not in said, f"seed {seed}: {said}"
    return Counter(one.end.partition(":")[0] for one in beside.damaged)


@pytest.mark.cluster
def test_each_schedule_and_operation_goes_on_or_is_named(stack: Stack, quick: Settings) -> None:
    assert run_beside(stack, quick, OF_BESIDE)["goes on"]


@pytest.mark.soak
def test_schedules_and_operations(stack: Stack, quick: Settings) -> None:
    """Fresh seeds; what one that fails finds gets a test of its own."""
    for number in range(20):
        seed = random.SystemRandom().randrange(2**32)
        print(f"seed {seed}")
        run_beside(stack, quick.model_copy(update={"database": f"{quick.database[:30]}_{number}"}), seed)
        stack.kill_workers()


@pytest.mark.soak
def test_five_thousand(stack: Stack, quick: Settings, tmp_path: Path) -> None:
    """Fresh seeds; what one that fails finds gets a test of its own."""
    for number in range(10):
        seed = random.SystemRandom().randrange(2**32)
        print(f"seed {seed}")
        folder = tmp_path / str(number)
        folder.mkdir()
        run(stack, quick.model_copy(update={"database": f"{quick.database[:30]}_{number}"}), folder, seed, 500)
        stack.kill_workers()
