"""MongoDB is killed, frozen or read-only while workflows run; or its primary is, or steps down.

No figure here is of a default: heartbeats and elections are four times as fast as those (see `storm.QUICK`).
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from recovery.settings import load
from recovery.stack import Mongod, ReplicaSet, Stack
from tests.cluster.storm import PROCESSES, Storm
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

OVERDUE = 400


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with Stack(tmp_path_factory.mktemp("three"), mongo_nodes=3) as stack:
        yield stack


@pytest.fixture
def nodes(three: Stack) -> Iterator[ReplicaSet]:
    assert three.replica_set is not None
    yield three.replica_set
    for member in three.replica_set.members:
        member.thaw()
    three.replica_set.start()


@pytest.fixture
def set_storm(three: Stack, tmp_path: Path) -> Iterator[Storm]:
    """A storm on a replica set of three."""
    database = f"test_{uuid.uuid4().hex[:12]}"
    storm = Storm(three, load(mongo_uri=three.mongo_uri, broker_url=three.broker_url, database=database), tmp_path)
    yield storm
    storm.end()


@pytest.fixture
def patient_storm(storm: Storm) -> Storm:
    """A storm in which nobody is to be judged: a worker that this busy machine holds up, and no other, has more than
    two seconds before it is. At 1.5 s it would have one."""
    storm.settings = storm.settings.model_copy(update={"heartbeat_timeout": 3.0})
    return storm


def nobody_was_judged(storm: Storm) -> None:
    """No attempt was taken for lost, and none was made twice."""
    assert storm.timeouts() == 0, storm.logged("WORKER_LOST", "WORK_TIMEOUT")
    assert len(storm.lines()) == storm.tasks


def begin(storm: Storm) -> None:
    """Workflows well under way."""
    storm.hire()
    storm.start(PROCESSES)
    storm.wait_lines(PROCESSES * 2)


def goes_on_for(seconds: float) -> None:
    """The fault itself takes so long."""
    threading.Event().wait(seconds)


def test_mongod_is_killed_and_started_again(storm: Storm, mongod: Mongod) -> None:
    begin(storm)
    mongod.kill()
    mongod.start()
    storm.check()


@pytest.mark.parametrize("times", [2, pytest.param(8, marks=pytest.mark.soak)])
def test_mongod_is_frozen_and_nobody_is_judged_by_it(patient_storm: Storm, mongod: Mongod, times: int) -> None:
    """For so many times the silence after which a worker counts as lost: all were silent, so nobody is. At 8 it is
    longer than the tasks' worker_timeout as well."""
    begin(patient_storm)
    mongod.freeze()
    goes_on_for(times * patient_storm.settings.heartbeat_timeout)
    mongod.thaw()
    patient_storm.check()
    nobody_was_judged(patient_storm)


def test_writes_are_refused_for_a_while(patient_storm: Storm) -> None:
    """As a service does whose disk is nearly full: reads are answered. What was done waits to be written."""
    begin(patient_storm)
    admin = patient_storm.database.client.admin
    admin.command({"setUserWriteBlockMode": 1, "global": True})
    try:
        goes_on_for(2 * patient_storm.settings.heartbeat_timeout)
    finally:
        admin.command({"setUserWriteBlockMode": 1, "global": False})
    patient_storm.check()
    nobody_was_judged(patient_storm)


@pytest.mark.soak
def test_the_disk_is_full(small_disk: Path, tmp_path: Path) -> None:
    """mongod does not survive that. It is started again when there is room."""
    with Stack(small_disk) as stack:
        assert stack.mongod is not None
        database = f"test_{uuid.uuid4().hex[:12]}"
        settings = load(mongo_uri=stack.mongo_uri, broker_url=stack.broker_url, database=database)
        storm = Storm(stack, settings, tmp_path)
        begin(storm)
        filler = small_disk / "filler"
        fill(filler)
        wait_until(lambda: stack.mongod and not stack.mongod.running, 90, "mongod to run out of disk")
        filler.unlink()
        stack.mongod.start()
        storm.check(timeout=90)
        storm.end()


def fill(filler: Path) -> None:
    """Take all the room that there is."""
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, with little more room than an empty database takes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=480m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_the_primary_is_killed(set_storm: Storm, nodes: ReplicaSet) -> None:
    begin(set_storm)
    primary = nodes.primary()
    primary.kill()
    set_storm.start(PROCESSES)  # nobody is told that his start failed
    set_storm.check()


@pytest.mark.soak
def test_the_primary_steps_down(set_storm: Storm, nodes: ReplicaSet) -> None:
    begin(set_storm)
    nodes.step_down()
    set_storm.start(PROCESSES)
    set_storm.check()


@pytest.mark.soak
def test_the_primary_is_frozen_and_stays_so(set_storm: Storm, nodes: ReplicaSet) -> None:
    """Its connections don't break: they are only never answered."""
    begin(set_storm)
    nodes.primary().freeze()
    set_storm.check(timeout=60)


@pytest.mark.soak
def test_a_frozen_primary_comes_back(set_storm: Storm, nodes: ReplicaSet) -> None:
    """It takes itself for the primary still, for a moment; what it writes then is taken back."""
    begin(set_storm)
    primary = nodes.primary()
    primary.freeze()
    wait_until(lambda: nodes.primary() is not primary, 20, "another primary")
    primary.thaw()
    set_storm.check()


@pytest.mark.soak
@pytest.mark.parametrize("killed", [True, False])
def test_in_the_middle_of_a_repair(set_storm: Storm, nodes: ReplicaSet, killed: bool) -> None:
    """What workers had claimed that are gone is being requeued, a page of ten after the other."""
    set_storm.start_tiny(OVERDUE)
    claimed = set_storm.claim_all("gone")
    assert claimed == OVERDUE
    set_storm.hire(scan_batch=10)
    decisions = set_storm.database["decisions"]
    wait_until(lambda: decisions.count_documents({"timeouts": 1}) > 20, 20, "the repair's begin")
    repaired = decisions.count_documents({"timeouts": 1})
    assert repaired < OVERDUE, "it is over already"
    if killed:
        nodes.primary().kill()
    else:
        nodes.step_down()
    set_storm.check(timeout=60)
