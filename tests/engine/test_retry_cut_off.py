"""However a failed attempt is cut off, it is counted once: as a retry, or as an attempt that brought no answer."""

from __future__ import annotations

import pytest

from recovery import Backoff, Settings, metrics
from recovery.errors import ServerError
from recovery.records import ProcessState, Worker
from recovery.scan import DecisionScanner
from recovery.store import schema
from tests.faults import Died, Fault, Kind, Plan, installed, under
from tests.stateful.passing import Passing
from tests.waiting import wait_until
from tests.world import World

pytestmark = pytest.mark.thorough

HOUR = 3600.0
FAILURES = 2
WORKER = Worker(id="w", name="w", host="here", pid=1, pid_started=1, queues=("order",))


def world_of(settings: Settings, left: list[int]) -> World:
    """One whose only task fails so often as `left` says."""
    world = World(settings)

    @world.app.process(retry=Backoff(initial=60, maximum=60, total="10d"), max_work_timeouts=100)
    def order() -> str:
        if left[0]:
            left[0] -= 1
            raise ConnectionRefusedError("away")
        return "done"

    return world


def run(settings: Settings, plan: Plan) -> tuple[int, int, int, int]:
    """Run a process under a plan, in somebody's hands; others bring it to its end. Its attempts, its retries, how many
    attempts brought no answer, and how often the task was given back before it ran."""
    left = [FAILURES]
    doomed, other = world_of(settings, left), world_of(settings, left)
    for name in (schema.PROCESSES, schema.TASKS, schema.DECISIONS, schema.GRAPHS, schema.INTERRUPTIONS):
        other.store.database[name].delete_many({})  # what is there costs time: it all grows older
    other.redis.flushdb()
    given_back = metrics.REQUEUES.labels("GIVEN_BACK", "order")._value
    lost = metrics.ACTOR_WORK_TIMEOUTS.labels("order")._value  # the record counts those in a row
    before, lost_before = given_back.get(), lost.get()
    process_id, passing = doomed.start("order"), Passing(doomed.store.database)
    doomed.tell()

    def ended() -> bool:
        other.store.workers.beat(WORKER, 600)
        passing.pass_by(HOUR)
        other.pump()  # polls the queues as well
        other.scan()
        return other.process(process_id).state is not ProcessState.RUNNING

    with installed():
        try:
            with under(plan):
                doomed.pump("doomed#1")
                passing.pass_by(HOUR)
                DecisionScanner(doomed.app.resources, doomed.app.outbox).run_once()
                doomed.pump("doomed#1")
        except (Died, ServerError):
            pass  # as a worker does: what it held stands at its deadline
        wait_until(ended, 30, f"the end under {plan}")
    assert other.process(process_id).state is ProcessState.FINISHED, plan
    assert other.app.result(process_id, timeout=0) == "done"
    decision = other.store.decisions.get(f"{process_id}/start")
    assert decision is not None and decision.retry is not None
    told = int(lost.get() - lost_before), int(given_back.get() - before)
    return decision.attempts, decision.retry.count, *told


@pytest.mark.parametrize(
    "kind",
    [
        Kind.DIES,
        *(pytest.param(kind, marks=pytest.mark.soak) for kind in (Kind.AFTER, Kind.DIES_AFTER, Kind.BEFORE)),
    ],
)
def test_an_attempt_is_counted_once(emptied: Settings, kind: Kind) -> None:
    place = 0
    while True:
        plan = Plan(Fault(kind, place))
        attempts, retries, lost, given_back = run(emptied, plan)
        told = f"{plan}: {attempts} attempts, {retries} retries, {lost} lost, {given_back} given back"
        # What was given back had been claimed, or not yet: nobody who asked knew.
        assert 0 <= attempts - (1 + retries + lost) <= given_back, told
        assert retries <= FAILURES, f"{plan}: a failure was counted twice"
        if not plan.told:  # not reached: there are no more places
            break
        place += 1
    assert place > 10, "the way has become shorter: what is not done any more?"
    assert (attempts, retries, lost) == (FAILURES + 1, FAILURES, 0)
