"""Schedules with real beats and workers: each slot once, whatever is killed, however clocks jump."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from recovery.engine.operations.schedules import Schedules
from recovery.errors import StartRefused
from recovery.records.schedule import Schedule
from recovery.stack import Mongod, Valkey
from tests.cluster import scheduled
from tests.cluster.conftest import Cluster
from tests.cluster.test_clocks import Stepping
from tests.cluster.test_clocks import library as library
from tests.cluster.test_clocks import stepping as stepping
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

TICK = timedelta(seconds=1)


@pytest.fixture
def signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(scheduled.FOLDER, str(tmp_path))
    return tmp_path


def get(cluster: Cluster, name: str) -> Schedule:
    found = cluster.app.resources.store.schedules.get(name)
    assert found is not None
    return found


def slots(cluster: Cluster, name: str = "tick") -> list[datetime]:
    """Slots of which there is a process, in the order of time; each as often as there are processes."""
    found = cluster.database["processes"].find({"type": name}, {"customId": True})
    return sorted(datetime.fromisoformat(one["customId"].partition("@")[2]) for one in found)


def wait_for(cluster: Cluster, count: int, name: str = "tick", timeout: float = 90) -> None:
    wait_until(lambda: cluster.database["processes"].count_documents({"type": name}) >= count, timeout, "slots")


def check_each_once(cluster: Cluster) -> None:
    """No slot has two instances, and from the first to the last none was left out."""
    found = slots(cluster)
    assert {later - earlier for earlier, later in pairwise(found)} == {TICK}, Counter(found).most_common(3)


@pytest.mark.usefixtures("signs")
def test_two_beats_and_two_workers_and_everything_is_killed(cluster: Cluster, mongod: Mongod, valkey: Valkey) -> None:
    cluster.serve(scheduled)
    beats = [cluster.beat(), cluster.beat()]
    doomed, _ = cluster.worker(concurrency=2), cluster.worker(concurrency=2)
    Schedules(cluster.app.resources).pause("pull", "not here")
    wait_for(cluster, 4)
    doomed.kill_group()
    wait_for(cluster, 7)
    mongod.kill()
    mongod.start()
    wait_for(cluster, 11)
    valkey.kill()
    valkey.start()
    wait_for(cluster, 15)
    cluster.stack.kill_workers()
    assert not any(beat.running for beat in beats)
    cluster.beat()
    cluster.worker(concurrency=4, wait=False)
    wait_for(cluster, 22)
    check_each_once(cluster)
    assert get(cluster, "pull").paused is not None, "no deployment resumes it"
    finished = {"type": "tick", "state": "finished"}
    wait_until(lambda: cluster.database["processes"].count_documents(finished) >= 15, 60, "instances to end")


@pytest.mark.usefixtures("signs")
def test_mongodbs_clock_jumps(stepping: Stepping) -> None:
    """Ten minutes ahead: an outage, of which all is caught up. Five seconds back: nothing twice, and it goes on."""
    cluster = stepping.cluster
    cluster.serve(scheduled)
    cluster.beat()
    cluster.beat()
    cluster.worker(wait=False)
    cluster.worker(wait=False)
    wait_for(cluster, 3)
    Schedules(cluster.app.resources).pause("pull", "not here")
    before = len(slots(cluster))
    stepping.step(600)
    wait_for(cluster, before + 600, timeout=120)
    check_each_once(cluster)
    count = len(slots(cluster))
    stepping.step(-5)
    wait_for(cluster, count + 3)
    check_each_once(cluster)


def runs(signs: Path) -> int:
    return len(list(signs.glob("pulled-*")))


def fails(signs: Path, how: str) -> None:
    (signs / "error").write_text(how)


def test_what_keeps_failing_is_disabled_through_a_restart_of_everything_and_enabled(
    cluster: Cluster, signs: Path, mongod: Mongod, valkey: Valkey
) -> None:
    fails(signs, "refused")
    cluster.serve(scheduled)
    cluster.beat()
    cluster.worker(concurrency=2)

    def disabled() -> Any:
        return get(cluster, "pull").disabled

    wait_until(lambda: disabled() is not None, 60, "it to be disabled")
    assert "3 times in a row" in disabled().reason
    assert runs(signs) == 3, "and not once more"
    markers = cluster.app.resources.store.markers
    assert markers.find("pull") is not None
    cluster.stack.kill_workers()
    valkey.kill()
    mongod.kill()
    mongod.start()
    valkey.start()
    cluster.beat()
    cluster.worker(concurrency=2, wait=False)
    ticks = len(slots(cluster))
    wait_for(cluster, ticks + 5)  # others go on meanwhile
    assert runs(signs) == 3 and disabled() is not None
    with pytest.raises(StartRefused, match="there is a marker pull"):
        cluster.app.start("pull")
    (signs / "error").unlink()
    Schedules(cluster.app.resources).enable("pull", "the host is back")
    wait_until(lambda: runs(signs) > 5, 60, "it to run again")
    assert disabled() is None and get(cluster, "pull").failing is None and markers.find("pull") is None


def test_another_error_in_between_does_not_disable(cluster: Cluster, signs: Path) -> None:
    fails(signs, "by two of each in turn")
    cluster.serve(scheduled)
    cluster.beat()
    cluster.worker(concurrency=2)
    wait_until(lambda: runs(signs) >= 9, 60, "it to fail nine times")
    assert get(cluster, "pull").disabled is None
    codes = {one["error"]["code"] for one in cluster.database["processes"].find({"type": "pull", "state": "broken"})}
    assert len(codes) == 2
