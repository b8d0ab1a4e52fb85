"""Valkey is killed while workflows run, with its data and without, frozen, or away when workers start; and there are
more beats and scanners than anybody needs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import redis

from recovery import Settings
from recovery.stack import ChildProcess, Valkey
from tests.cluster.storm import PROCESSES, Storm
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    "keeps",
    [pytest.param(True, id="with its data", marks=pytest.mark.soak), pytest.param(False, id="without its data")],
)
def test_valkey_is_killed(storm: Storm, valkey: Valkey, keeps: bool) -> None:
    """With its data twice: a worker that has connected again once must do so again."""
    workers = storm.hire()
    for times in (1, 2) if keeps else (1,):
        storm.start(PROCESSES)
        storm.wait_lines(PROCESSES)
        valkey.kill()
        if not keeps:
            valkey.lose_data()
        storm.start(1)  # its message can't be pushed
        all_say(workers, " is away (", times)
        valkey.start()
        all_say(workers, "Redis is back, after", times)
    storm.check()


@pytest.mark.soak
def test_valkey_refuses_writes(storm: Storm, settings: Settings) -> None:
    """As with a full disk or memory: an answer, but not a good one."""
    workers = storm.hire()
    storm.start(PROCESSES)
    storm.wait_lines(PROCESSES)
    with redis.Redis.from_url(settings.broker_url) as broker:
        broker.config_set("min-replicas-to-write", 1)
        try:
            storm.start(1)
            all_say(workers, "NOREPLICAS", 1)
        finally:
            broker.config_set("min-replicas-to-write", 0)
    storm.check()


def all_say(workers: Sequence[ChildProcess], what: str, times: int) -> None:
    """Wait until it stands in each worker's log so often."""
    logs = [worker.log for worker in workers]
    wait_until(lambda: all(log.read_text().count(what) >= times for log in logs), 20, f"{what!r} in all logs")


@pytest.mark.soak
def test_valkey_is_frozen(storm: Storm, valkey: Valkey) -> None:
    storm.hire()
    storm.start(PROCESSES)
    storm.wait_lines(PROCESSES)
    valkey.freeze()
    storm.start(1)
    valkey.thaw()
    storm.check()
    assert storm.timeouts() == 0


def test_workers_and_beats_that_start_before_valkey(storm: Storm, valkey: Valkey) -> None:
    valkey.kill()
    storm.start(PROCESSES)
    early = storm.worker()
    storm.hire(workers=0)
    wait_until(lambda: "start of this worker: retry 1" in "\n".join(early.last_lines()), 20, "the worker to wait")
    valkey.start()
    storm.check()


@pytest.mark.soak
@pytest.mark.parametrize("scanners", [3, 10])
def test_two_beats_and_many_scanners(storm: Storm, scanners: int) -> None:
    """They scan at once, and yet each decision is queued again once."""
    storm.start_tiny(100)
    storm.claim_all("gone")
    storm.hire(workers=scanners, beats=2, concurrency=1)
    storm.check(timeout=60)
    assert storm.timeouts() == 100
    assert len(storm.lines()) == storm.tasks
