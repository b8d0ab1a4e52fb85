"""How soon it goes on: lost work is found, starts of a client that was cut off begin, and what is sent after Redis was
silent arrives."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.network.checks import contradictions, log_offsets
from tests.network.cluster import CLIENT, MONGODB, REDIS, WORKERS, Cluster, told_by
from tests.network.scenarios import WORKER, play
from tests.network.workload import Workload, workload
from tests.waiting import wait_until

pytestmark = pytest.mark.soak

TIMES, CUT_SECONDS = 10, 20.0
FOUND_USUALLY, FOUND_ALWAYS = 8.0, 12.0
"""Seconds from the cut, in nine of ten and in all."""
CLIENT_CUT, BEGUN_WITHIN = 9.0, 2.0
REDIS_SILENT = 20.0


def test_work_of_a_worker_without_mongodb_is_found(cluster: Cluster) -> None:
    found = []
    for time_ in range(TIMES):
        with workload(cluster, f"lost-work-{time_}", 1.5, 2, 3.0) as running:
            wait_until(lambda running=running: _runs_on(cluster, running, WORKER), 60, f"a task on {WORKER}")
            found.append(_seconds_until_found(cluster))
            running.finish(120)
        assert contradictions(cluster, running) == []
        cluster.wait_healthy()
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"lost work found after {', '.join(f'{one:.1f}' for one in sorted(found))} s; load average {load}")
    assert sorted(found)[TIMES * 9 // 10 - 1] <= FOUND_USUALLY and max(found) <= FOUND_ALWAYS, (found, load)


def _runs_on(cluster: Cluster, running: Workload, host: str) -> bool:
    ended = {line["run"] for line in cluster.lines(f"ledger-{host}") if line["event"] == "ended"}
    return any(
        line["run"] not in ended
        for line in cluster.lines(f"ledger-{host}")
        if line["event"] == "began" and line["key"].startswith(f"{running.name}-")
    )


def _seconds_until_found(cluster: Cluster) -> float:
    """Cut the worker from MongoDB for a while: seconds until the other one requeued what it held."""
    (other,) = (name for name in WORKERS if name != WORKER)
    offsets, found = log_offsets(cluster), []
    began = time.time()

    def cut() -> Iterator[float]:
        cluster.hosts.cut(WORKER, MONGODB)
        yield CUT_SECONDS

    play(cluster, cut(), CUT_SECONDS)
    for line in told_by(cluster.log(other), offsets[other]):
        if line["message"].startswith("WORKER_LOST: "):
            found.append(datetime.fromisoformat(line["time"]).timestamp() - began)
    assert found, f"{other} found nothing that {WORKER} had held"
    return min(found)


def test_starts_of_a_client_that_was_cut_off_begin_soon(cluster: Cluster) -> None:
    with workload(cluster, "cut-client", 0.4, 1, 0.05) as running:
        running.wait_told(5)
        cut_at = time.monotonic()

        def cut() -> Iterator[float]:
            cluster.hosts.isolate(CLIENT)
            yield CLIENT_CUT

        play(cluster, cut(), CLIENT_CUT)
        healed_at = time.monotonic()
        wait_until(lambda: any(line["at"] > healed_at + 3 for line in running.lines("asked")), 30, "starts after it")
        running.finish(120)
    assert contradictions(cluster, running) == []
    began, late = running.began(), {}
    for line in running.lines("started"):
        waited = began[line["key"]] - max(healed_at, line["at"])
        if line["at"] > cut_at - 1 and waited > BEGUN_WITHIN:
            late[line["key"]] = round(waited, 1)
    assert late == {}, f"seconds from the client's return, or the start's acknowledgement, if later: {late}"


def test_nothing_is_lost_by_connections_that_died(cluster: Cluster) -> None:
    """While Redis is silent all idle connections to it die, and nobody is told."""
    with workload(cluster, "silent-redis") as running:
        running.wait_told(3)
        running.pause()

        def cut() -> Iterator[float]:
            cluster.hosts.isolate(REDIS)
            yield REDIS_SILENT

        play(cluster, cut(), REDIS_SILENT)
        offsets = log_offsets(cluster)
        running.go_on()
        told = len(running.lines("told"))
        wait_until(lambda: len(running.lines("told")) > told + 4, 60, "more results")
        running.finish(120)
    lost = [
        line["message"]
        for name in WORKERS
        for line in told_by(cluster.log(name), offsets[name])
        if line["message"].startswith("MESSAGE_LOST: ")
    ]
    assert [*lost, *contradictions(cluster, running)] == []
