"""Which fault comes when, and that each is mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pytest

from recovery.demo.faults import Broken, Fault, faults
from recovery.demo.options import Chaos, FaultKind
from recovery.demo.trouble import Storm
from recovery.demo.workforce import Workforce
from recovery.engine import Resources
from recovery.errors import ServerError
from recovery.settings import load
from recovery.stack import Stack
from tests.waiting import wait_until

OF_SERVERS = {
    FaultKind.PRIMARY_KILLED,
    FaultKind.PRIMARY_STEPPED_DOWN,
    FaultKind.PRIMARY_FROZEN,
    FaultKind.PRIMARY_LOST,
    FaultKind.MONGODB_AWAY,
    FaultKind.VALKEY_KILLED,
    FaultKind.VALKEY_LOST,
}


def test_each_kind_comes_once_before_one_comes_again() -> None:
    kinds = list(FaultKind)
    drawn = list(islice(Chaos(1, seed=7).deck(kinds), 2 * len(kinds)))
    assert sorted(drawn[: len(kinds)]) == sorted(drawn[len(kinds) :]) == sorted(kinds)
    assert drawn == list(islice(Chaos(1, seed=7).deck(kinds), 2 * len(kinds)))
    assert drawn != list(islice(Chaos(1, seed=8).deck(kinds), 2 * len(kinds)))


def possible(stack: Stack) -> set[FaultKind]:
    chaos = Chaos(0, seed=1)
    unused = Resources.connect(load(mongo_uri="mongodb://unused", broker_url="redis://unused"))
    return set(faults(stack, Workforce(stack, {}, chaos, Path()), unused, chaos))


def test_servers_of_others_are_left_alone(tmp_path: Path) -> None:
    assert possible(Stack(tmp_path, mongo_uri="mongodb://m", broker_url="redis://r")) == set(FaultKind) - OF_SERVERS
    assert possible(Stack(tmp_path, mongo_nodes=3)) == set(FaultKind)


class Told:
    """Faults that only say that they took place."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.mended: list[str] = []
        self.over = False

    def __call__(self, kind: FaultKind) -> Fault:
        @contextmanager
        def fault() -> Iterator[Broken]:
            yield Broken(kind.value, lambda: self.over)
            self.mended.append(kind.value)

        return fault


def test_what_is_broken_is_mended_when_the_storm_is_over() -> None:
    told = Told()
    storm = Storm({FaultKind.WORKER_FROZEN: told(FaultKind.WORKER_FROZEN)}, Chaos(0, seed=1), 0.0, told.broken.append)
    storm.start()
    wait_until(lambda: told.broken, 5, "a fault")
    storm.stop()
    storm.check()
    assert told.mended == told.broken == ["worker_frozen"]
    assert storm.struck == Counter({FaultKind.WORKER_FROZEN: 1})


def test_what_has_come_about_is_mended_before_its_time() -> None:
    told = Told()
    told.over = True
    storm = Storm({FaultKind.WORKER_FROZEN: told(FaultKind.WORKER_FROZEN)}, Chaos(0, seed=1), 0.0, told.broken.append)
    storm.start()
    wait_until(lambda: len(told.mended) > 2, 5, "faults that are mended at once, and not after 20 s each")
    storm.stop()
    assert told.mended == told.broken


def test_once_it_has_ended_nothing_new_is_broken_and_what_was_is_mended() -> None:
    told = Told()
    storm = Storm({FaultKind.WORKER_FROZEN: told(FaultKind.WORKER_FROZEN)}, Chaos(0, seed=1), 0.0, told.broken.append)
    storm.start()
    wait_until(lambda: told.broken, 5, "a fault")
    storm.end()
    wait_until(lambda: told.mended, 5, "its mending")
    storm.stop()
    assert told.mended == told.broken == ["worker_frozen"]


def test_a_storm_that_is_stopped_in_a_pause() -> None:
    told = Told()
    storm = Storm({FaultKind.WORKER_FROZEN: told(FaultKind.WORKER_FROZEN)}, Chaos(0, seed=1), 600.0, told.broken.append)
    storm.stop()
    storm.start()
    storm.stop()
    assert told.broken == []


def test_what_goes_wrong_with_a_fault_is_told() -> None:
    @contextmanager
    def fault() -> Iterator[Broken]:
        raise ServerError("does not start")
        yield Broken("")

    storm = Storm({FaultKind.VALKEY_KILLED: fault}, Chaos(0, seed=1), 0.0, print)
    storm.start()
    wait_until(storm.failed, 5, "the failure")
    with pytest.raises(ServerError, match="does not start"):
        storm.check()
