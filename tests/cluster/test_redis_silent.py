"""Redis goes silent without a reset, between it and all workers and beats: nothing waits for it for ever, it is told,
and once it speaks again everything is at work within seconds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest

from recovery import Settings
from recovery.health import Level, examine
from recovery.health.live_workers import polls
from recovery.repair import look_around
from recovery.rules import Rule, judge_decision
from recovery.stack.server_process import HOST
from recovery.store.views.overview import Overview
from tests.cluster.conftest import Cluster
from tests.cluster.storm import Storm
from tests.cluster.test_mongo_faults import goes_on_for
from tests.silence import Way, way_to
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

AT_WORK_TIMEOUT = 15.0
QUEUES = ("workflow", "workflow_task", "collect")


@pytest.fixture
def way(settings: Settings) -> Iterator[Way]:
    """What workers and beats take for Redis; the test itself speaks with Redis directly."""
    with way_to(urlsplit(settings.broker_url).port or 0) as way:
        yield way


def by(way: Way, storm: Storm) -> dict[str, str]:
    database = urlsplit(storm.settings.broker_url).path
    return {"RECOVERY_BROKER_URL": f"redis://{HOST}:{way.port}{database}"}


def polled_ago(storm: Storm) -> timedelta:
    """How long ago the queue was polled that was polled last."""
    store = storm.resources.store
    return store.now() - max(one.polled_at for one in store.queues.all().values() if one.polled_at)


CASES = [
    pytest.param("prefork", 2.0, False, False, id="prefork, no calls, forgets"),
    pytest.param("threads", 4.0, True, False, id="threads, calls, forgets", marks=pytest.mark.soak),
    pytest.param("prefork", 45.0, True, True, id="prefork, calls, remembers, for long", marks=pytest.mark.soak),
    pytest.param("threads", 45.0, False, False, id="threads, no calls, forgets, for long", marks=pytest.mark.soak),
]


@pytest.mark.parametrize(("pool", "seconds", "answers_calls", "remembers"), CASES)
def test_silence(storm: Storm, way: Way, pool: str, seconds: float, answers_calls: bool, remembers: bool) -> None:
    """So many seconds after its polls are told as unanswered, which is within some more."""
    storm.hire(env=by(way, storm), pool=pool)
    storm.start(3)
    storm.wait_lines(3)
    wait_until(lambda: all(map(look_around(storm.resources, queues=QUEUES).is_polled, QUEUES)), 10, "polls")
    way.silence(answers_calls=answers_calls)
    around = look_around(storm.resources, queues=QUEUES)
    unpolled = around.polled_within + timedelta(seconds=seconds)
    wait_until(lambda: polled_ago(storm) > unpolled, 2 * unpolled.total_seconds() + 5, "nobody to poll")
    around = look_around(storm.resources, queues=QUEUES)
    assert not any(map(around.is_polled, QUEUES))
    living = Overview(storm.resources.store.database).workers_alive()
    assert len(living) == 2, "Redis's silence is none of theirs"
    (told,) = examine(storm.resources, [("polls", polls, ())])
    assert told.level is Level.PROBLEM, told

    storm.start(1)
    ran, ended = last_scan(storm), len(storm.lines())
    way.speak(remembers=remembers)
    spoke = time.monotonic()
    wait_until(lambda: len(storm.lines()) > ended, AT_WORK_TIMEOUT, "work")
    wait_until(lambda: last_scan(storm) > ran, AT_WORK_TIMEOUT, "a scan")
    wait_until(lambda: polled_ago(storm) < timedelta(seconds=2), AT_WORK_TIMEOUT, "polls")
    assert time.monotonic() - spoke <= AT_WORK_TIMEOUT
    wait_until(storm.ended, AT_WORK_TIMEOUT, "all ends, of what was lost on its way as well")
    storm.check()


@pytest.mark.soak
def test_a_worker_without_room(cluster: Cluster, way: Way) -> None:
    """Its slots are busy, so it asks for nothing: what waits for it lags, and waits for no worker. Unless Redis is
    silent; and then it ends on SIGTERM as ever."""
    cluster.settings = cluster.settings.model_copy(update={"message_timeout": 1.0})
    env = {"broker_url": f"redis://{HOST}:{way.port}{urlsplit(cluster.settings.broker_url).path}"}
    cluster.beat()
    leaving = cluster.worker(**env)
    for _ in range(2):
        cluster.app.start("one_slow", cluster.folder, 600)
    cluster.wait_began(1)
    resources, queue = cluster.app.resources, "one_slow"
    found = wait_until(lambda: cluster.database["decisions"].find_one({"actor": queue, "state": "queued"}), 5, "it")
    waiting = resources.store.decisions.get(found["_id"])
    assert waiting is not None
    polled_within = look_around(resources).polled_within
    wait_until(lambda: look_around(resources, queues=[queue]).is_polled(queue), 10, "a poll")
    for _ in range(20):
        around = look_around(resources, queues=[queue])
        judged = judge_decision(waiting.evolve(recovery_time=around.now), around)
        assert judged is not None and judged.rule is Rule.ACTORS_LAG, judged
        goes_on_for(polled_within.total_seconds() / 10)
    way.silence(answers_calls=True)
    wait_until(lambda: not look_around(resources, queues=[queue]).is_polled(queue), 20, "nobody to poll")
    leaving.terminate()
    assert leaving.wait(15), cluster.log(leaving)
    assert cluster.decision("slow")["state"] == "queued"


def last_scan(storm: Storm) -> datetime:
    """When a scanner ran last; long ago if none did, since the beat took its time to start."""
    ran = (one.ran_at for one in storm.resources.store.scanners.all().values() if one.ran_at)
    return max(ran, default=datetime.min.replace(tzinfo=UTC))
