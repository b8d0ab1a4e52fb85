"""Within ten seconds of a cut `recovery doctor` names its cause, and advises nothing that is not so."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from recovery.health.model import Cause, Level
from tests.network import scenarios
from tests.network.cluster import CLIENT, MONGODB, REDIS, Cluster
from tests.network.scenarios import LONG, Steps, play
from tests.waiting import wait_until

pytestmark = pytest.mark.soak

NAMED_WITHIN = 10.0
"""Seconds from the cut, beside what a doctor takes on this machine that finds nothing: mostly its imports."""
LOOKED_ON = 15.0
"""Seconds from the cut for which what is said is looked at: all of it must be so."""

OF_NO_PRIMARY = {Cause.NO_PRIMARY, Cause.PRIMARY_UNREACHABLE, Cause.NO_MAJORITY, Cause.WRITES_NOT_ACKNOWLEDGED}
"""What is said until another primary is elected; and what follows from it, for others."""
FOLLOWS = {Cause.HEALTHY, Cause.NOT_ASKED, Cause.ASK_FAILED, Cause.WRITES_SLOW}
STANDS_STILL = {
    Cause.WORKER_WITHOUT_MONGODB,
    Cause.NO_SCANS,
    Cause.WORKERS_SILENT,
    Cause.NUDGES_LOST,
    Cause.NUDGES_NOT_TAKEN,
    Cause.RECORDS_OVERDUE,
}
"""While there is no primary no worker writes heartbeats, or that it scanned."""
HERE = {Cause.SPARK_MISSING, Cause.MONGODB_SHOWS_MEMORY, Cause.PACKAGES_UNFIT}
"""What is so of this machine, and of its servers, whatever is cut."""


@dataclass(frozen=True, slots=True)
class Case:
    """A cut, the causes of which one is to be named, what else may be said, and what nobody may be advised to do."""

    cut: Callable[[Cluster], Steps]
    named: set[Cause]
    also: set[Cause]


def client_from_all(cluster: Cluster) -> Steps:
    """Whoever asks reaches no server."""
    cluster.hosts.isolate(CLIENT)
    yield LONG


def client_from_primary(cluster: Cluster) -> Steps:
    """Whoever asks does not reach the primary, and all others do."""
    primary = cluster.primary()
    assert primary is not None
    cluster.hosts.cut(CLIENT, [primary])
    yield LONG


def client_from_redis(cluster: Cluster) -> Steps:
    """Whoever asks does not reach Redis, and workers do."""
    cluster.hosts.cut(CLIENT, [REDIS])
    yield LONG


def client_from_secondary(cluster: Cluster) -> Steps:
    """Whoever asks does not reach a secondary, and all others do."""
    primary = cluster.primary()
    cluster.hosts.cut(CLIENT, [next(name for name in MONGODB if name != primary)])
    yield LONG


LOST_MEMBER = {Cause.MEMBERS_DOWN, Cause.MEMBERS_CUT_OFF, *OF_NO_PRIMARY}
CASES = [
    Case(scenarios.primary_from_all, {Cause.MEMBERS_DOWN, *OF_NO_PRIMARY}, STANDS_STILL),
    Case(scenarios.primary_from_secondaries, LOST_MEMBER - {Cause.MEMBERS_DOWN}, STANDS_STILL),
    Case(scenarios.primary_is_not_heard, LOST_MEMBER - {Cause.MEMBERS_DOWN}, STANDS_STILL),
    Case(scenarios.primary_does_not_hear, LOST_MEMBER - {Cause.MEMBERS_DOWN}, STANDS_STILL),
    Case(scenarios.worker_from_mongodb, {Cause.WORKER_WITHOUT_MONGODB}, {Cause.WORKERS_SILENT, Cause.WORKERS_LOST}),
    Case(scenarios.worker_from_redis, {Cause.POLLS_UNANSWERED}, set()),
    Case(scenarios.worker_from_both, {Cause.WORKERS_SILENT, Cause.WORKERS_LOST}, set()),
    Case(scenarios.redis_from_all, {Cause.REDIS_UNREACHABLE}, {Cause.POLLS_UNANSWERED, Cause.NO_SCANS}),
    Case(
        scenarios.host_of_beat, {Cause.SCANS_WITHOUT_BEAT, Cause.NO_BEAT},
        {Cause.NO_SCANS, Cause.RECORDS_OVERDUE, Cause.WORKERS_SILENT, Cause.WORKERS_LOST},
    ),
    Case(client_from_all, {Cause.MONGODB_UNREACHABLE}, {Cause.REDIS_UNREACHABLE}),
    Case(client_from_primary, {Cause.PRIMARY_UNREACHABLE}, set()),
    Case(client_from_secondary, {Cause.MEMBERS_UNREACHABLE}, set()),
    Case(client_from_redis, {Cause.REDIS_UNREACHABLE}, set()),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=[case.cut.__name__ for case in CASES])
def test_the_cause_is_named(cluster: Cluster, case: Case) -> None:
    # A worker that was lost before is told of for a while.
    of_before = {Cause.WORKERS_LOST} if case.named != {Cause.WORKERS_SILENT, Cause.WORKERS_LOST} else set()
    wait_until(lambda: bad(answered(cluster)) <= HERE | of_before, 180, "a doctor that finds nothing")
    began = time.monotonic()
    answered(cluster)
    usual = time.monotonic() - began
    seen: list[tuple[float, list[dict[str, Any]]]] = []

    def ask() -> Iterator[float]:
        steps = case.cut(cluster)
        next(steps)
        cut_at = time.monotonic()
        while True:
            checks = answered(cluster)
            seen.append((time.monotonic() - cut_at, checks))
            yield 0.1

    play(cluster, ask(), LOOKED_ON)
    told = [(round(at, 1), sorted(bad(checks) - HERE)) for at, checks in seen]
    print(f"{case.cut.__name__}, a doctor takes {usual:.1f} s: {told}")
    assert [at for at, checks in seen if bad(checks) & case.named and at <= NAMED_WITHIN + usual], (usual, told)
    for at, checks in seen:
        others = [one for one in checks if Cause(one["cause"]) not in case.named | case.also | FOLLOWS | HERE]
        assert others == [], f"{at:.1f} s after the cut it was said what is not so"
        assert_nobody_is_sent_astray(checks)


def assert_nobody_is_sent_astray(checks: list[dict[str, Any]]) -> None:
    """What runs is not to be started, what is not behind needs no more of it, and rights are no part of a network."""
    problems = [one for one in checks if one["level"] == Level.PROBLEM and one["cause"] == Cause.NOT_ASKED]
    assert problems == [], "what was not asked is no problem of its own"
    for one in checks:
        assert "start the members" not in one["advice"] and "more workers" not in one["advice"], one
        assert "rights" not in one["advice"] and "Topology" not in one["found"], one


def answered(cluster: Cluster) -> list[dict[str, Any]]:
    """All checks of `recovery doctor` on the client's host."""
    done = cluster.command("doctor", "--json")
    found: list[dict[str, Any]] = json.loads(done.text.splitlines()[0])["checks"]
    return found


def bad(checks: list[dict[str, Any]]) -> set[Cause]:
    """The causes of all that is not well."""
    return {Cause(one["cause"]) for one in checks} - {Cause.HEALTHY, Cause.NOT_ASKED}
