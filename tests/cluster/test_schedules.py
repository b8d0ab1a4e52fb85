"""Schedules with real beats and workers: each slot once, whatever is killed, however clocks jump."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from recovery.engine.operators.markers import clear_marker
from recovery.engine.operators.schedules import Schedules
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


def pause(cluster: Cluster) -> None:
    for name in ("pull", "fetch"):
        Schedules(cluster.app.resources).pause(name, "not here")


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
    pause(cluster)
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


@pytest.mark.soak
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
    pause(cluster)
    before = len(slots(cluster))
    stepping.step(600)
    wait_for(cluster, before + 600, timeout=120)
    check_each_once(cluster)
    count = len(slots(cluster))
    stepping.step(-5)
    wait_for(cluster, count + 3)
    check_each_once(cluster)


def runs(signs: Path, name: str) -> int:
    return len(list(signs.glob(f"{name}-*")))


def fails(signs: Path, how: str) -> None:
    (signs / "error").write_text(how)


@pytest.mark.soak
def test_what_keeps_failing_is_disabled_through_a_restart_of_everything_and_enabled(
    cluster: Cluster, signs: Path, mongod: Mongod, valkey: Valkey
) -> None:
    """One by count, and one by time."""
    fails(signs, "refused")
    cluster.serve(scheduled)
    cluster.beat()
    cluster.worker(concurrency=2)
    names, markers = ("pull", "fetch"), cluster.app.resources.store.markers

    def disabled(name: str) -> Any:
        return get(cluster, name).disabled

    wait_until(lambda: all(map(disabled, names)), 60, "both to be disabled")
    assert "3 times in a row" in disabled("pull").reason
    assert "retry_across allows 3s" in disabled("fetch").reason
    ran = {name: runs(signs, name) for name in names}
    assert ran["pull"] == 3, "and not once more"
    assert all(markers.find(name) for name in names)
    cluster.stack.kill_workers()
    valkey.kill()
    mongod.kill()
    mongod.start()
    valkey.start()
    cluster.beat()
    cluster.worker(concurrency=2, wait=False)
    ticks = len(slots(cluster))
    wait_for(cluster, ticks + 5)  # others go on meanwhile
    assert {name: runs(signs, name) for name in names} == ran
    for name in names:
        assert disabled(name) is not None
        with pytest.raises(StartRefused, match=f"there is a marker {name}"):
            cluster.app.start(name)
    (signs / "error").unlink()
    Schedules(cluster.app.resources).enable("pull", "the host is back")
    clear_marker(cluster.app.resources, "fetch", "the host is back")
    for name in names:
        wait_until(lambda name=name: runs(signs, name) > ran[name] + 2, 60, f"{name} to run again")  # type: ignore[misc]
        found = get(cluster, name)
        assert found.disabled is None and found.failing is None and markers.find(name) is None
        assert found.changes[-1].reason.endswith("the host is back")


@pytest.mark.soak
def test_another_error_in_between_does_not_disable(cluster: Cluster, signs: Path) -> None:
    fails(signs, "by two of each in turn")
    cluster.serve(scheduled)
    cluster.beat()
    cluster.worker(concurrency=2)
    wait_until(lambda: runs(signs, "pull") >= 9, 60, "it to fail nine times")
    assert get(cluster, "pull").disabled is None
    codes = {one["error"]["code"] for one in cluster.database["processes"].find({"type": "pull", "state": "broken"})}
    assert len(codes) == 2
