"""The compare-and-sets on one decision: taken in the condition they are made for, and in no other."""

from __future__ import annotations

import time
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from recovery.records import Child, Decision, DecisionState, ErrorInfo, Outcome, Task
from recovery.store import Held, Queued, Store, queued
from tests.store import single
from tests.store.writing import contents, get, is_close, put

DAY = timedelta(days=1)
MINE, NEWER = "mine", "newer"
CHILD = Child(id="c", actor="add", args='[["$x"],{"a.b":1}]', deps=("b",), dependents={"d": "sum"}, delay=1.5)


def seconds(amount: float) -> timedelta:
    return timedelta(seconds=amount)


def decision(key: str, state: DecisionState, store: Store, **fields: object) -> Decision:
    """A decision whose deadline is a day away."""
    made = Decision(id=key, actor="add", state=state, pass_key=MINE, recovery_time=store.now() + DAY)
    return made.evolve(**fields)


@pytest.mark.parametrize("state", DecisionState)
@pytest.mark.parametrize("pass_key", [MINE, NEWER])
def test_claim(store: Store, state: DecisionState, pass_key: str) -> None:
    put(store, decision("p/t", state, store, pass_key=pass_key, attempts=2, queued_at=store.now() - DAY))
    before = contents(store, "decisions")
    claimed = single.claim(store, "add", "p/t", MINE, "w#1", 30)
    if state is DecisionState.QUEUED and pass_key == MINE:
        assert claimed == get(store, "p/t")
        assert (claimed.state, claimed.worker, claimed.attempts) == (DecisionState.WORKING, "w#1", 3)
        assert is_close(claimed.claimed_at, store.now())
        assert is_close(claimed.recovery_time, store.now() + seconds(30))
    else:
        assert claimed is None
        assert contents(store, "decisions") == before


@pytest.mark.parametrize("pass_key", ["current", "old"])
@pytest.mark.parametrize("state", DecisionState)
def test_wait_again(store: Store, state: DecisionState, pass_key: str) -> None:
    """By who holds the claim alone: what was ended meanwhile, under that pass, has ended."""
    put(store, Decision(id="p/t", actor="add", state=state, pass_key="current", worker="w#1"))
    before, claimed = contents(store, "decisions"), get(store, "p/t").evolve(pass_key=pass_key)
    holds = state is DecisionState.WORKING and pass_key == "current"
    assert store.decisions.wait_again(claimed) is holds
    if holds:
        assert get(store, "p/t").state is DecisionState.WAITING
    else:
        assert contents(store, "decisions") == before


def test_of_two_claims_with_one_message_one_is_taken(store: Store) -> None:
    put(store, decision("p/t", DecisionState.QUEUED, store))
    assert single.claim(store, "add", "p/t", MINE, "w#1", 30)
    assert not single.claim(store, "add", "p/t", MINE, "w#2", 30)
    assert get(store, "p/t").worker == "w#1"


def test_a_claim_is_for_one_actors_task(store: Store) -> None:
    put(store, decision("p/queued", DecisionState.QUEUED, store), Decision(id="p/waiting", actor="add"))
    before = contents(store, "decisions")
    assert single.claim(store, "sum", "p/queued", MINE, "w#1", 30) is None
    assert single.claim_ready(store, "sum", "p/waiting", 0, NEWER, "w#1", 30) is None
    assert contents(store, "decisions") == before


@pytest.mark.parametrize("state", DecisionState)
@pytest.mark.parametrize("times", [{}, {"delay": 0.0}, {"eta": True}])
def test_claim_ready(store: Store, state: DecisionState, times: dict[str, object]) -> None:
    times = {name: store.now() - DAY if value is True else value for name, value in times.items()}
    put(store, decision("p/t", state, store, pass_key=None, **times))
    before = contents(store, "decisions")
    claimed = single.claim_ready(store, "add", "p/t", 0, NEWER, "w#1", 30)
    if state is DecisionState.WAITING and not times:
        assert claimed == get(store, "p/t")
        assert (claimed.state, claimed.pass_key, claimed.attempts) == (DecisionState.WORKING, NEWER, 1)
        assert is_close(claimed.queued_at, store.now())
        assert is_close(claimed.recovery_time, store.now() + seconds(30))
    else:
        assert claimed is None
        assert contents(store, "decisions") == before


@pytest.mark.parametrize("state", DecisionState)
@pytest.mark.parametrize("pass_key", [MINE, NEWER])
def test_extend(store: Store, state: DecisionState, pass_key: str) -> None:
    put(store, decision("p/t", state, store, pass_key=pass_key, recovery_time=store.now() - DAY))
    before = contents(store, "decisions")
    if state is DecisionState.WORKING and pass_key == MINE:
        assert store.decisions.extend("p/t", MINE, 30)
        assert is_close(get(store, "p/t").recovery_time, store.now() + seconds(30))
    else:
        assert not store.decisions.extend("p/t", MINE, 30)
        assert contents(store, "decisions") == before


OUTCOMES = {
    "value": Outcome(pass_key=MINE, value='{"a.b":"$NOW"}', waits=("c",)),
    "error": Outcome(pass_key=MINE, error=ErrorInfo(kind="KeyError", message="$x", task="t", actor="add")),
}


@pytest.mark.parametrize("accept_first", [True, False])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_finish_in_every_condition(store: Store, accept_first: bool, kind: str) -> None:
    """From the holder in any epoch: what is kept, where others are done again, goes on. A value from any attempt of
    the epoch while the task is undecided, or from the holder only; an error from the holder."""
    outcome = OUTCOMES[kind]
    for number, (state, pass_key, epoch) in enumerate(product(DecisionState, [MINE, NEWER], [0, 1])):
        key = f"p/{number}"
        put(store, decision(key, state, store, pass_key=pass_key, epoch=epoch, worker="other#1"))
        before = contents(store, "decisions", [key])
        claimed = decision(key, DecisionState.WORKING, store)
        accepted = single.finish(
            store, claimed, outcome, [CHILD], accept_first=accept_first, worker="w#1", apply_timeout=5
        )
        holds = state is DecisionState.WORKING and pass_key == MINE
        undecided = state in (DecisionState.WORKING, DecisionState.QUEUED, DecisionState.DELAYED)
        condition = f"{state}, pass {pass_key}, epoch {epoch}"
        any_attempt = epoch == 0 and accept_first and kind == "value" and undecided
        assert accepted == (holds or any_attempt), condition
        if not accepted:
            assert contents(store, "decisions", [key]) == before, condition
            continue
        found = get(store, key)
        assert (found.state, found.children, found.worker) == (DecisionState.FINISHED, (CHILD,), "w#1"), condition
        assert found.outcome is not None
        assert found.outcome.evolve(finished_at=None) == outcome, condition
        assert is_close(found.outcome.finished_at, store.now())
        assert is_close(found.recovery_time, store.now() + seconds(5))


def finish(store: Store, key: str, outcome: Outcome, accept_first: bool = True, epoch: int = 0) -> bool:
    """Finish for an attempt that claimed with the pass of `outcome`."""
    claimed = Decision(id=key, actor="add", pass_key=outcome.pass_key, epoch=epoch)
    return single.finish(store, claimed, outcome, [], accept_first=accept_first, worker="w#1", apply_timeout=5)


@pytest.mark.parametrize("accept_first", [True, False])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_who_asks_again_after_a_lost_reply_is_told_that_it_is_taken(
    store: Store, accept_first: bool, kind: str
) -> None:
    put(store, decision("p/t", DecisionState.WORKING, store))
    assert finish(store, "p/t", OUTCOMES[kind], accept_first)
    before = contents(store, "decisions")
    assert finish(store, "p/t", OUTCOMES[kind], accept_first)
    assert contents(store, "decisions") == before, "asking changes nothing"


@pytest.mark.parametrize("others", [(), ("p/v",)], ids=["alone", "with another"])
@pytest.mark.parametrize(
    "found", [{"state": DecisionState.FINISHED}, {"epoch": 1}, {"state": DecisionState.QUEUED}, {"actor": "sum"}]
)
def test_what_is_ready_no_more_is_not_claimed(store: Store, found: dict[str, Any], others: tuple[str, ...]) -> None:
    put(store, *(Decision(id=key, actor="add") for key in others))
    put(store, Decision(id="p/u", actor="add").evolve(**found, recovery_time=store.now()))
    before = contents(store, "decisions", ["p/u"])
    claimed = store.decisions.claim_ready("add", ["p/u", *others], 0, NEWER, "w#1", 30)
    assert {one.id for one in claimed} == set(others)
    assert contents(store, "decisions", ["p/u"]) == before


def test_of_two_results_one_is_taken(store: Store) -> None:
    put(store, decision("p/t", DecisionState.WORKING, store, pass_key=NEWER))
    assert finish(store, "p/t", Outcome(pass_key=MINE, value="1"))
    assert not finish(store, "p/t", Outcome(pass_key=NEWER, value="2"))
    assert not finish(store, "p/t", Outcome(pass_key="third", value="3"), epoch=1)
    outcome = get(store, "p/t").outcome
    assert outcome is not None
    assert outcome.value == "1"


@pytest.mark.parametrize("accept_first", [True, False])
def test_a_task_that_timed_out_for_good_has_no_attempts_result(store: Store, accept_first: bool) -> None:
    """The scanner's error carries a pass that no attempt has: nobody takes it for its own."""
    put(store, decision("p/t", DecisionState.WORKING, store, recovery_time=store.now() - DAY))
    failed = store.task_ends.fail(["p/t"], ErrorInfo(kind="WorkTimeout", message="late"), "the scanner's")
    assert failed == ["p/t"]
    assert not finish(store, "p/t", OUTCOMES["value"], accept_first)
    assert not finish(store, "p/t", OUTCOMES["error"], accept_first)


def test_rest_takes_the_deadline_off_what_is_finished_only(store: Store) -> None:
    put(store, *(decision(f"p/{state}", state, store, worker="w#1") for state in DecisionState))
    before = contents(store, "decisions")
    assert store.decisions.clear_deadlines(list(before)) == 1
    assert store.decisions.clear_deadlines(list(before)) == 0
    after = contents(store, "decisions")
    finished = after.pop("p/finished")
    assert "recoveryTime" not in finished
    assert "worker" not in finished
    assert after == {key: before[key] for key in after}


def test_apply_later(store: Store) -> None:
    put(store, decision("p/live", DecisionState.FINISHED, store))
    put(store, decision("p/resting", DecisionState.FINISHED, store, recovery_time=None))
    put(store, decision("p/working", DecisionState.WORKING, store))
    before = contents(store, "decisions")
    for key in before:
        store.decisions.apply_later(key, 7)
    assert is_close(get(store, "p/live").recovery_time, store.now() + seconds(7))
    after = contents(store, "decisions")
    assert {key for key in after if after[key] != before[key]} == {"p/live"}


def test_inserted_twice_is_inserted_once(store: Store) -> None:
    first = [Decision(id=f"p/{n}", actor="add") for n in range(3)]
    assert store.decisions.insert(first[:1]) == 1
    assert single.claim_ready(store, "add", "p/0", 0, MINE, "w#1", 30)
    assert store.decisions.insert(first) == 2
    assert store.decisions.insert(first) == store.decisions.insert(first[:1]) == store.decisions.insert([]) == 0
    assert get(store, "p/0").state is DecisionState.WORKING
    assert store.decisions.present(["p/0", "p/1", "p/2", "p/3"]) == {"p/0", "p/1", "p/2"}


def test_inserted_as_queued(store: Store) -> None:
    now = store.now()
    given = Decision(id="p/t", actor="add", queued_at=now, pass_key=MINE)
    assert store.decisions.insert_queued([given], 7, {}) == {"p/t"}
    assert queued(given) == Queued("p/t", "add", MINE, now)
    found = get(store, "p/t")
    assert (found.state, found.pass_key, found.queued_at) == (DecisionState.QUEUED, MINE, now)
    assert found.recovery_time == now + seconds(7)
    assert store.decisions.insert_queued([given.evolve(pass_key=NEWER)], 7, {}) == set()
    assert get(store, "p/t") == found


def test_outcomes_are_of_what_is_finished(store: Store) -> None:
    put(store, decision("p/w", DecisionState.WORKING, store))
    put(store, decision("p/f", DecisionState.FINISHED, store, outcome=OUTCOMES["value"]))
    held = Held(OUTCOMES["value"], size=len(OUTCOMES["value"].value or ""), left_out=False)
    assert store.decisions.outcomes(["p/w", "p/f", "p/none"]) == {"p/f": held}


def test_held_by_a_worker_or_one_of_its_processes(store: Store) -> None:
    holders = ["w1#1", "w1#12", "w12#1", "w2#1"]
    for holder in holders:
        put(store, decision(f"p/{holder}", DecisionState.WORKING, store, worker=holder))

    def held(*names: str) -> set[str]:
        return {one.id.partition("/")[2] for one in store.decisions.held_by(names, 10)}

    assert held("w1") == {"w1#1", "w1#12"}
    assert held("w1#1") == {"w1#1"}
    assert held("w12", "w2#1", "w3") == {"w12#1", "w2#1"}


def test_deadlines_are_set_by_the_databases_clock(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 7 * 86400)
    put(store, decision("p/t", DecisionState.WAITING, store))
    claimed = single.claim_ready(store, "add", "p/t", 0, MINE, "w#1", 3600)
    assert claimed is not None
    assert claimed.recovery_time is not None
    assert claimed.claimed_at is not None
    assert claimed.recovery_time - claimed.claimed_at == seconds(3600)
    assert is_close(claimed.claimed_at, store.now())
    (queued,) = store.requeues.requeue_given_back(["p/t"], ["w#1"], NEWER)
    assert is_close(queued.queued_at, store.now())


def test_parts_of_records(store: Store) -> None:
    """Of those that are there; without arguments and values."""
    put(store, *(decision(key, DecisionState.QUEUED, store) for key in ("p/t", "p/u", "pp/t")))
    put(store, Task(id="p/t", actor="add", args="[]", dependents={"u": "add"}), Task(id="p/u", actor="add", args="[]"))
    some = ["p/t", "p/u", "q/t"]
    assert store.decisions.counts(["q", "p"]) == {"q": 0, "p": 2}
    assert store.decisions.counts([]) == {}
    assert store.decisions.present(some) == store.tasks.present(some) == {"p/t", "p/u"}
    assert store.decisions.states(some) == dict.fromkeys(["p/t", "p/u"], DecisionState.QUEUED)
    assert store.tasks.dependents(some) == {"p/t": ["u"], "p/u": []}


def test_one_that_became_ready_and_cant_be_read_is_left_out(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever made it ready has a task of its own, which must not end with it."""
    put(store, Decision(id="p/t", actor="add"))
    store.database["decisions"].update_one(
        {"_id": "p/t"}, {"$set": {"fallible": "no boolean"}}, bypass_document_validation=True
    )
    assert store.decisions.claim_ready("add", ["p/t"], 0, NEWER, "w#1", 30) == []
    assert "p/t" in caplog.text and "fallible" in caplog.text
    found = store.database["decisions"].find_one({"_id": "p/t"})
    assert found is not None and found["state"] == "working" and found["recoveryTime"], "scanners see to it"
