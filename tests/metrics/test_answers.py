"""What servers are asked for scrapes: what it says of operations, queues and what is overdue."""

from __future__ import annotations

from datetime import timedelta

import pytest

from recovery.metrics import answers
from recovery.metrics.collectors import ServerCollector
from recovery.queue import Broker
from recovery.records import (
    ActorPreferences,
    Decision,
    DecisionState,
    Operation,
    OperationKind,
    OperationRange,
    OperationState,
    Phase,
    Totals,
    Worker,
)
from recovery.settings import Settings
from recovery.store import Store, layout, schema
from recovery.store.views import pending
from recovery.store.views.waiting_tasks import OTHERS
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.store.writing import put


@pytest.fixture
def store(emptied: Settings) -> Store:
    store = Store(emptied)
    layout.create(store.database)
    return store


def told(store: Store, settings: Settings) -> dict[str, dict[tuple[str, ...], float]]:
    """{metric: {values of its labels: value}}"""
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in ServerCollector(store, Broker(settings.broker_url)).collect()
    }


def operation(store: Store, state: OperationState, phase: Phase, planned: Totals | None = None) -> int:
    """One, of which two ranges have counted."""
    made = store.operations.insert(Operation(id=0, kind=OperationKind.REPAIR, who="me", why="a test"), 60)
    assert store.operations.save(made.evolve(state=state, phase=phase, planned=planned), 60)
    for number, totals in enumerate((Totals(processes=40, found=3, done=2), Totals(processes=2, found=1, errors=1))):
        name = f"{made.id}/{phase.value}/{number}"
        put(store, OperationRange(id=name, operation=made.id, phase=phase, totals=totals, recovery_time=store.now()))
    return made.id


def test_an_operation_that_plans_and_one_that_is_applied(store: Store, emptied: Settings) -> None:
    plans = operation(store, OperationState.PLANNING, Phase.PLAN)
    applied = operation(store, OperationState.RUNNING, Phase.APPLY, planned=Totals(processes=900, found=9))
    operation(store, OperationState.PAUSED, Phase.APPLY, planned=Totals(processes=900, found=9))
    operation(store, OperationState.FINISHED, Phase.APPLY, planned=Totals(processes=900, found=9))
    operation(store, OperationState.PLANNED, Phase.PLAN)
    found = told(store, emptied)
    states = ("planning", "running", "paused")
    assert found["recovery_operations_open"] == {("repair", state): 1 for state in states}
    done, of = found["recovery_operation_done"], found["recovery_operation_found"]
    assert (done[str(plans), "repair"], of[str(plans), "repair"]) == (42, 4), "looked at, and found something on"
    assert (done[str(applied), "repair"], of[str(applied), "repair"]) == (3, 9), "ended, of all that are planned"
    assert len(done) == len(of) == 3
    share = found["recovery_operation_share"]
    assert share[str(applied), "repair"] == pytest.approx(3 / 9)
    assert share[str(plans), "repair"] == 0, "no range is begun"


def test_queues(store: Store, emptied: Settings) -> None:
    for name in ("a", "b"):
        store.workers.beat(Worker(id=name, name=name, host="", pid=1, pid_started=1, queues=("pack",)), 60)
    store.workers.beat(Worker(id="c", name="c", host="", pid=1, pid_started=1, queues=("pack", "send")), -1)
    now = store.now()
    for age, name in ((90, "old"), (5, "new")):
        waits = Decision(
            id=f"p/{name}", actor="send", state=DecisionState.QUEUED, queued_at=now - timedelta(seconds=age)
        )
        put(store, waits.evolve(recovery_time=now + timedelta(hours=1)))
    found = told(store, emptied)
    assert found["recovery_queue_consumers"] == {("pack",): 2, ("send",): 0}
    assert found["recovery_queue_oldest_seconds"][("pack",)] == 0
    assert 90 <= found["recovery_queue_oldest_seconds"][("send",)] < 150


def test_how_much_is_overdue(store: Store, emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many are counted, and no more."""
    past = store.now() - timedelta(hours=1)
    late = [Decision(id=f"p/{n}", actor="send", state=DecisionState.QUEUED, queued_at=past) for n in range(5)]
    put(store, *(one.evolve(recovery_time=past) for one in late))
    assert told(store, emptied)["recovery_overdue"][(schema.DECISIONS,)] == 5
    monkeypatch.setattr(answers, "COUNT_LIMIT", 3)
    assert told(store, emptied)["recovery_overdue"][(schema.DECISIONS,)] == 3


def test_the_version(store: Store, emptied: Settings) -> None:
    ((version,),) = told(store, emptied)["recovery_build_info"]
    assert version[0].isdigit()


@pytest.mark.parametrize("known", [(), ("zz-served", "zz-idle")])
def test_names_that_a_client_made_up_are_no_series_without_end(
    store: Store, emptied: Settings, known: tuple[str, ...]
) -> None:
    """By their order the made-up names come first: none of them takes the place of one that a worker told of."""
    now = store.now()
    store.actors.save(ActorPreferences(id=name) for name in known)
    made_up = [f"made-up-{number:03}" for number in range(3 * pending.MAX_STRANGERS)]
    for state in (DecisionState.QUEUED, DecisionState.DELAYED, DecisionState.WAITING):
        waits = [
            Decision(id=f"p/{state}{n}", actor=name, state=state, queued_at=now, recovery_time=now + timedelta(hours=1))
            for n, name in enumerate([*made_up, *known[:1]])
        ]
        put(store, *waits)
    found = told(store, emptied)
    strangers = {(name,) for name in made_up[: pending.MAX_STRANGERS]}
    for metric in ("queued_unserved", "queue_consumers", "queue_oldest_seconds"):
        assert found[f"recovery_{metric}"].keys() == {*strangers, (OTHERS,), *((name,) for name in known)}, metric
    unserved = found["recovery_queued_unserved"]
    assert unserved[OTHERS,] == 3 * 2 * pending.MAX_STRANGERS
    assert known == () or (unserved["zz-served",], unserved["zz-idle",]) == (2, 0), "of no process that runs"
    assert OTHERS not in store.waiting.by_actor(wanted=made_up) and len(store.waiting.by_actor(wanted=made_up)) >= 150


def test_a_name_of_megabytes_is_not_read(store: Store, emptied: Settings) -> None:
    """As a database has it that was filled before there were validators."""
    now = store.now()
    long = [
        {"_id": f"p/{n}", "actor": f"{n}" + "x" * 4_000_000, "state": "queued", "queuedAt": now,
         "recoveryTime": now + timedelta(hours=1)}
        for n in range(6)
    ]  # fmt: skip
    for one in long:
        store.database.command("insert", schema.DECISIONS, documents=[one], bypassDocumentValidation=True)
    found = told(store, emptied)
    assert found["recovery_queued_unserved"] == {(OTHERS,): 6}
    assert found["recovery_queue_depth"].keys() == {(OTHERS,)}
