"""One of two workers can't reach MongoDB, and everything else can: it leaves the nudges and the messages to the other,
what it had in hand is found within seconds, and it goes on once it is back.

The way to MongoDB goes silent, as behind a firewall that drops; Redis is reached by all. At the default settings.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import psutil
import pytest

from recovery import Settings
from recovery.stack import ChildProcess
from recovery.stack.server_process import HOST
from tests.cluster.conftest import Cluster
from tests.silence import Way, way_to
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

FOUND_TIMEOUT = 12.0
"""Seconds until what the cut-off worker had in hand is begun again; 8 in most runs (`make soak` counts them)."""
LOST_WITHIN = 9.0
"""Seconds until what was queued meanwhile is done, whoever took its message."""
BACK_TIMEOUT = 10.0


@pytest.fixture
def way(settings: Settings) -> Iterator[Way]:
    """What one of the workers takes for MongoDB."""
    with way_to(urlsplit(settings.mongo_uri).port or 0) as way:
        yield way


def by(way: Way) -> dict[str, str]:
    # The set's own word of its members would lead it past the way.
    return {"mongo_uri": f"mongodb://{HOST}:{way.port}/?directConnection=true"}


def is_child_of(pid: int, worker: ChildProcess) -> bool:
    return bool(worker.pid in {pid, *(parent.pid for parent in psutil.Process(pid).parents())})


@pytest.mark.parametrize("beats", [True, False], ids=["with a beat", "without a beat"])
def test_lost_work_is_found_by_the_other_worker(cluster: Cluster, way: Way, beats: bool) -> None:
    cluster.settings = cluster.settings.model_copy(update={"scan_interval": 1.0})
    cut_off = cluster.worker(concurrency=2, **by(way))
    if beats:
        cluster.beat()
    cluster.app.start("one_slow", cluster.folder, 600)
    cluster.wait_began(1)
    other = cluster.worker(concurrency=2)
    way.silence(answers_calls=False)
    at = time.monotonic()
    cluster.wait_began(2, FOUND_TIMEOUT)
    print(f"found after {time.monotonic() - at:.1f} s, load {os.getloadavg()[0]:.1f}")
    assert is_child_of(cluster.began()[1], other)
    way.speak(remembers=False)
    cluster.go()
    wait_until(lambda: cluster.database["processes"].count_documents({"state": "finished"}), 20, "the end")
    assert cut_off.running


def test_what_it_took_is_left_to_the_other_worker(cluster: Cluster, way: Way) -> None:
    """Also what it takes before it knows; and once it is back, it takes what there is."""
    cluster.beat()
    cut_off, other = cluster.worker(concurrency=2, **by(way)), cluster.worker(concurrency=2)
    way.silence(answers_calls=False)
    ids = [cluster.app.start("many_quick", cluster.folder, 4, -1, "") for _ in range(20)]
    at = time.monotonic()
    states = {"state": "finished", "_id": {"$in": ids}}
    wait_until(lambda: cluster.database["processes"].count_documents(states) == len(ids), LOST_WITHIN, "all to end")
    print(f"done after {time.monotonic() - at:.1f} s, load {os.getloadavg()[0]:.1f}")
    wait_until(lambda: "no heartbeat is written" in cluster.log(cut_off), 10, "a heartbeat that is not written")
    other.terminate()
    assert other.wait(15), cluster.log(other)
    late = cluster.app.start("many_quick", cluster.folder, 4, -1, "")
    way.speak(remembers=False)
    over = {"state": "finished", "_id": late}
    wait_until(lambda: cluster.database["processes"].count_documents(over), BACK_TIMEOUT, "it is back")
