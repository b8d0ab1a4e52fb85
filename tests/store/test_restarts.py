"""Updates of a restart: each takes place in the state that it was decided from, and in no other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.records import Decision, DecisionState, ErrorInfo, Graph, Outcome, Process, ProcessState
from recovery.store import Restarted, Store
from tests.store.writing import put

LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)
FAILED = Outcome(pass_key="k", error=ErrorInfo(kind="ValueError", message="no"))
BROKEN = Decision(
    id="p/t", actor="a", state=DecisionState.FINISHED, outcome=FAILED, pass_key="k", attempts=2, timeouts=3,
    worker="w#1", queued_at=LONG_AGO, enqueued_at=LONG_AGO, recovery_time=LONG_AGO,
)  # fmt: skip
T0, T1, T2 = (Restarted("p/t", restarts, 0) for restarts in range(3))


def test_queued_for_its_next_life(store: Store) -> None:
    put(store, BROKEN)
    (queued,) = store.restarts.queue([T0], "new")
    now = store.decisions.get("p/t")
    assert now is not None
    assert now.queued_at is not None
    assert now.recovery_time is not None
    assert now.queued_at == queued.queued_at == now.enqueued_at > LONG_AGO
    assert now.recovery_time - now.queued_at >= timedelta(seconds=1)
    assert now == Decision(
        id="p/t", actor="a", state=DecisionState.QUEUED, pass_key="new", attempts=2, restarts=1,
        queued_at=now.queued_at, enqueued_at=now.queued_at, recovery_time=now.recovery_time,
    )  # fmt: skip
    assert (queued.pass_key, queued.first) == ("new", False)
    assert store.restarts.queue([T0], "newer") == []


@pytest.mark.parametrize(
    "changes",
    [
        {"state": DecisionState.WORKING},
        {"outcome": Outcome(pass_key="k", value="1")},
        {"fallible": True},
        {"restarts": 1},
        {"epoch": 1},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_is_not_queued(store: Store, changes: dict[str, Any]) -> None:
    put(store, BROKEN.evolve(**changes))
    before = store.decisions.get("p/t")
    assert store.restarts.queue([T0, Restarted("p/none", 0, 0)], "new") == []
    assert store.decisions.get("p/t") == before


def test_many_of_several_lives_at_once(store: Store) -> None:
    lives = {f"p/{number}": number % 3 for number in range(9)}
    for key, restarts in lives.items():
        put(store, BROKEN.evolve(id=key, restarts=restarts or None))
    queued = store.restarts.queue([Restarted(key, restarts, 0) for key, restarts in lives.items()], "new")
    assert {one.id for one in queued} == set(lives)
    found = store.decisions.briefs(lives)
    assert {key: decision.restarts for key, decision in found.items()} == {key: n + 1 for key, n in lives.items()}


def graph(**changes: Any) -> Graph:
    made: dict[str, Any] = {"not_finished": {"t": LONG_AGO, "u": LONG_AGO}, "failed": {"t": True}, **changes}
    return Graph(id="p", **made)


@pytest.mark.parametrize(
    ("there", "told", "failed", "known"),
    [
        (graph(), T1, {}, {"t": 1}),
        (graph(), T2, {}, {"t": 2}),
        (graph(failed={"t": True, "u": True}), T1, {"u": True}, {"t": 1}),
        (graph(restarted={"t": 1}), T1, {"t": True}, {"t": 1}),
        (graph(restarted={"t": 2}), T1, {"t": True}, {"t": 2}),
        (graph(epoch=1), T1, {"t": True}, {}),
    ],
    ids=["first", "one was cut off", "another", "again", "later", "aborted"],
)
def test_graphs_are_told_once(store: Store, there: Graph, told: Restarted, failed: Any, known: Any) -> None:
    put(store, there)
    store.restarts.reopen_graphs([told])
    now = store.graphs.get("p")
    assert now is not None
    assert (now.failed, now.restarted) == (failed, known)
    assert (now.recovery_time is not None) == (failed != there.failed), "what is reopened is live"


def test_what_failed(store: Store) -> None:
    put(store, graph())
    assert store.restarts.failed(["p", "q"]) == {"p": ["t"]}
    assert store.restarts.without_failure([T1]) == set()
    store.restarts.reopen_graphs([T1])
    assert store.restarts.failed(["p", "q"]) == {}
    assert store.restarts.without_failure([T1, Restarted("q/t", 1, 0)]) == {"p"}
    assert store.restarts.without_failure([Restarted("p/done", 1, 0)]) == {"p"}, "it may have ended since"


@pytest.mark.parametrize(("restarts", "known"), [(None, {}), (1, {"t": 1})])
@pytest.mark.parametrize("other", [None, 1, 2])
def test_a_failure_is_noted_in_its_life_only(store: Store, restarts: Any, known: Any, other: Any) -> None:
    put(store, graph(failed={}, restarted=known, recovery_time=LONG_AGO))
    assert store.graphs.fail("p", 0, "t", other) is (other == restarts)
    assert store.graphs.is_failed("p", "t", other) is (other == restarts)


ENDED = Process(
    id="p", type="o", args="[[],{}]", state=ProcessState.BROKEN, error=FAILED.error, started_at=LONG_AGO,
    ended_at=LONG_AGO,
)  # fmt: skip


def test_a_process_is_reopened_once(store: Store) -> None:
    put(store, ENDED)
    for times in (1, 2):
        seen = store.processes.get("p")
        assert seen is not None
        assert store.restarts.reopen_processes([seen]) == 1
        assert store.restarts.reopen_processes([seen]) == 0
        now = store.processes.get("p")
        assert now is not None
        assert (now.state, now.reopened, now.error, now.ended_at) == (ProcessState.RUNNING, times, None, None)
        assert now.recovery_time is not None
        assert FAILED.error is not None
        assert not store.processes.break_("p", 0, FAILED.error, seen.reopened), "decided before it was reopened"
        assert store.processes.break_("p", 0, FAILED.error, now.reopened)


@pytest.mark.parametrize("changes", [{"epoch": 1}, {"state": ProcessState.ABORTED}, {"reopened": 3}])
def test_a_process_that_is_not_as_it_was_seen(store: Store, changes: dict[str, Any]) -> None:
    put(store, ENDED.evolve(**changes))
    assert store.restarts.reopen_processes([ENDED]) == 0
    assert store.processes.get("p") == ENDED.evolve(**changes)
