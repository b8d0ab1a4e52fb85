"""Valkey is killed while workflows run, with its data and without, frozen, or away when workers start; and there are
more beats and scanners than anybody needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recovery.stack import Stack, Valkey
from tests.cluster.storm import Storm
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

PROCESSES = 6


@pytest.fixture
def valkey(stack: Stack) -> Iterator[Valkey]:
    assert stack.valkey is not None
    yield stack.valkey
    stack.valkey.thaw()
    stack.valkey.start()


@pytest.mark.parametrize("keeps", [True, False], ids=["with its data", "without its data"])
def test_valkey_is_killed(storm: Storm, valkey: Valkey, keeps: bool) -> None:
    """Twice: a worker that has connected again once must do so again."""
    storm.hire()
    for _ in range(2):
        storm.start(PROCESSES)
        storm.wait_lines(PROCESSES)
        valkey.kill()
        if not keeps:
            valkey.lose_data()
        storm.start(1)  # its message can't be pushed
        valkey.start()
    storm.check()


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
    wait_until(lambda: "trying again" in "\n".join(early.last_lines()), 20, "the worker to wait")
    valkey.start()
    storm.check()


def test_two_beats_and_ten_scanners(storm: Storm) -> None:
    """Ten workers scan at once, of which two have slots for tasks to speak of: each decision is queued again once."""
    storm.start_tiny(100)
    storm.claim_all("gone")
    storm.hire(workers=10, beats=2, concurrency=1)
    storm.check(timeout=60)
    assert storm.timeouts() == 100
    assert len(storm.lines()) == storm.tasks
