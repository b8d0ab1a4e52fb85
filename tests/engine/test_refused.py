"""A task whose call the code of a worker does not accept waits for a worker of another version."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery import Backoff, Recovery, Settings
from recovery.engine import Intake, Result, Slot
from recovery.engine.operators.redo import redo_process
from recovery.engine.run import refusing
from recovery.engine.run.pace import Pace
from recovery.health.process_check import look, repair
from recovery.queue import MessageId
from recovery.records import Decision, DecisionState, ProcessState, Refused, RetryState, Worker
from recovery.records.ids import new_pass
from recovery.search import in_words, parse
from tests.engine.test_retry import only
from tests.faults import Died
from tests.store import single
from tests.waiting import wait_until
from tests.world import World, arguments, check_quiet

GRACE = 600
UNKNOWN = "got an unexpected keyword argument 'currency'"


def price(number: int) -> int:
    return number


def price_in(number: int, currency: str = "EUR") -> str:
    return f"{number} {currency}"


def price_in_given(number: int, currency: str) -> str:
    return f"{number} {currency}"


def price_by(number: int, unit: str) -> str:
    return f"{number} by the {unit}"


class Versions:
    """Worlds of several versions of one application, on the same database and broker."""

    def __init__(self, settings: Settings) -> None:
        self.settings = World(settings, version_grace=GRACE).settings

    def world(self, version: str, function: Callable[..., Any], **preferences: Any) -> World:
        """A version whose process `order` is this function."""
        app = Recovery(self.settings, version=version)
        app.process("order", **preferences)(function)
        world = World(self.settings, app)
        world.tell()
        return world


@pytest.fixture
def versions(emptied: Settings) -> Versions:
    return Versions(emptied)


def lives(world: World, version: str | None, *queues: str) -> None:
    """A worker of this version lives and serves these queues."""
    worker = Worker(id=f"w-{version}", name=f"w-{version}", host="h", pid=1, pid_started=1)
    world.store.workers.beat(worker.evolve(queues=queues or ("order",), application_version=version), 60)


def refusals(decision: Decision) -> Refused:
    assert decision.refused is not None
    return decision.refused


def pass_by(world: World, seconds: float) -> None:
    """Have this time pass: every time in the decisions is so much earlier."""
    for field in ("recoveryTime", "eta", "enqueuedAt", "queuedAt", "retry.since", "retry.until", "retry.failedAt"):
        earlier = {"$subtract": [f"${field}", 1000 * seconds]}
        world.store.database["decisions"].update_many({field: {"$exists": True}}, [{"$set": {field: earlier}}])
    by: Any = {"$map": {"input": "$refused.by", "in": {"$mergeObjects": ["$$this", {}]}}}
    by["$map"]["in"]["$mergeObjects"][1] = {"since": {"$subtract": ["$$this.since", 1000 * seconds]}}
    world.store.database["decisions"].update_many({"refused": {"$exists": True}}, [{"$set": {"refused.by": by}}])


def refused_again(world: World, seconds: float) -> None:
    """After this time a scanner queues what is due, and this worker takes it."""
    pass_by(world, seconds)
    world.scan()
    assert world.pump() == 1


def test_an_unknown_parameter_costs_no_attempt_and_another_version_takes_the_task(versions: Versions) -> None:
    new, old = versions.world("2.0", price_in), versions.world("1.0", price)
    process_id = new.start("order", 7, currency="SEK")
    before = new.store.now()
    assert old.pump() == 1
    decision = only(old, process_id)
    assert (decision.state, decision.attempts, decision.timeouts) == (DecisionState.DELAYED, 0, 0)
    assert (decision.worker, decision.retry, decision.outcome) == (None, None, None)
    assert decision.waits_for_newer_worker
    assert (refusals(decision).count, [(one.version, one.why) for one in refusals(decision).by]) == (
        1,
        [("1.0", UNKNOWN)],
    )
    assert decision.recovery_time is not None
    assert timedelta(0) <= decision.recovery_time - before - timedelta(seconds=1) < timedelta(seconds=5)
    pass_by(new, 2)
    new.scan()
    assert new.bring_to_end(process_id).result == '"7 SEK"'
    assert only(new, process_id).attempts == 1
    check_quiet(new, process_id)


def test_a_missing_parameter_is_the_same(versions: Versions) -> None:
    """The callee came first, with a new parameter that has no default."""
    new, old = versions.world("2.0", price_in_given), versions.world("1.0", price)
    process_id = old.start("order", 7)
    assert new.pump() == 1
    assert refusals(only(new, process_id)).by[0].why == "missing a required argument: 'currency'"
    pass_by(old, 2)
    assert old.bring_to_end(process_id).result == "7"


def test_a_parameter_whose_name_is_long_is_named_in_part(versions: Versions) -> None:
    def price_by_any(number: int, **units: int) -> int:
        return number + len(units)

    new, old = versions.world("2.0", price_by_any), versions.world("1.0", price)
    process_id = new.start("order", 7, **{"x" * 100_000: 1})
    assert old.pump() == 1
    (refusal,) = refusals(only(old, process_id)).by
    assert refusal.why == f"got an unexpected keyword argument '{'x' * 1000}"[:500]
    pass_by(old, 2)
    assert new.bring_to_end(process_id).result == "8"


def test_a_type_error_that_is_raised_inside_the_function_is_a_failure_of_the_task(versions: Versions) -> None:
    def nothing_for_it(number: int) -> int:
        return price(number, currency="SEK")  # type: ignore[call-arg]

    world = versions.world("1.0", nothing_for_it)
    process_id = world.start("order", 7)
    world.pump()
    assert world.process(process_id).state is ProcessState.BROKEN
    assert only(world, process_id).refused is None


def test_the_delay_grows_to_thirty_seconds() -> None:
    assert [refusing.delay_after(count) for count in range(1, 9)] == [1, 2, 4, 8, 16, 30, 30, 30]
    assert refusing.delay_after(100_000) == 30


def test_each_refusal_in_a_row_delays_the_task_for_longer(versions: Versions) -> None:
    new, old = versions.world("2.0", price_in), versions.world("1.0", price)
    lives(new, "2.0")
    process_id = new.start("order", 7, currency="SEK")
    assert old.pump() == 1
    for count, delay in ((2, 2), (3, 4), (4, 8)):
        before = new.store.now()
        refused_again(old, 31)
        decision = only(old, process_id)
        assert refusals(decision).count == count and decision.attempts == 0
        assert decision.recovery_time is not None
        assert delay <= (decision.recovery_time - before).total_seconds() < delay + 2
    assert old.process(process_id).state is ProcessState.RUNNING


def test_a_task_fails_once_every_live_version_has_refused_it_for_the_grace(versions: Versions) -> None:
    new, old, newest = (
        versions.world("2.0", price_in),
        versions.world("1.0", price),
        versions.world("3.0", price_by),
    )
    lives(old, "1.0")
    lives(old, "2.0", "another")
    process_id = new.start("order", 7, currency="SEK")
    assert old.pump() == 1
    refused_again(old, GRACE - 5)
    assert only(old, process_id).waits_for_newer_worker, "not refused for long enough"
    lives(old, "3.0")
    refused_again(old, 31)
    assert only(old, process_id).waits_for_newer_worker, "version 3.0 lives, and has not refused it"
    refused_again(newest, 31)
    refused_again(old, 31)
    assert only(old, process_id).waits_for_newer_worker, "version 3.0 has refused it for half a minute only"
    lives(old, None)
    refused_again(newest, GRACE)
    assert only(old, process_id).waits_for_newer_worker, "a worker without a version lives, and refuses nothing"
    old.store.workers.remove(["w-None"])
    refused_again(newest, 31)
    assert only(old, process_id).waits_for_newer_worker, "that worker was there half a minute ago"
    refused_again(newest, GRACE)
    process = old.process(process_id)
    assert process.state is ProcessState.BROKEN
    assert process.error is not None
    assert (process.error.kind, process.error.code) == ("CallRefused", 40004)
    assert process.error.message == (
        "no live worker accepts this call of order: every version of the application has refused it for at least 10m "
        f"(1.0: {UNKNOWN}; 3.0: missing a required argument: 'unit'). Start workers whose code accepts it, then "
        "restart the task"
    )
    assert process.error.no_retry == "no live worker has code that accepts it"


def test_a_restart_by_an_operator_begins_the_refusals_anew(versions: Versions) -> None:
    new, old = versions.world("2.0", price_in), versions.world("1.0", price)
    process_id = new.start("order", 7, currency="SEK")
    assert old.pump() == 1
    refused_again(old, GRACE + 1)
    assert old.process(process_id).state is ProcessState.BROKEN
    old.app.restart(process_id)
    old.pump()
    assert refusals(only(old, process_id)).count == 1
    assert old.process(process_id).state is ProcessState.RUNNING
    pass_by(new, 2)
    assert new.bring_to_end(process_id).result == '"7 SEK"'


def test_a_restart_of_a_task_that_timed_out_while_it_waited_begins_the_refusals_anew(versions: Versions) -> None:
    new = versions.world("2.0", price_in)
    old = versions.world("1.0", price, task_timeout=GRACE / 2)
    process_id = new.start("order", 7, currency="SEK")
    assert old.pump() == 1
    pass_by(old, GRACE + 1)
    old.scan()
    old.flush()
    error = old.process(process_id).error
    assert error is not None and error.kind == "TaskTimeout"
    old.app.restart(process_id)
    old.pump()
    assert refusals(only(old, process_id)).count == 1
    assert old.process(process_id).state is ProcessState.RUNNING


def test_a_process_that_is_done_again_begins_the_refusals_anew(versions: Versions) -> None:
    new, old = versions.world("2.0", price_in), versions.world("1.0", price)
    process_id = new.start("order", 7, currency="SEK")
    assert old.pump() == 1
    redo_process(old.app.resources, process_id, "a test")
    decision = only(old, process_id)
    assert (decision.epoch, decision.refused, decision.eta) == (1, None, None)
    assert new.bring_to_end(process_id).result == '"7 SEK"'


def test_refusals_count_from_the_last_attempt_that_began(versions: Versions) -> None:
    """Another version accepted the task meanwhile: it is not refused by all."""

    def fails_at_first(number: int, currency: str) -> None:
        del number, currency
        raise ConnectionRefusedError(111, "away")

    policy = Backoff(initial=60, coefficient=1, jitter=(0, 0), maximum=60, total="24h")
    new = versions.world("2.0", fails_at_first, retry=policy)
    old = versions.world("1.0", price, retry=policy)
    process_id = new.start("order", 7, currency="SEK")
    assert old.pump() == 1
    pass_by(old, 2)
    new.scan()
    assert new.pump() == 1
    decision = only(new, process_id)
    assert (decision.state, decision.refused, decision.attempts) == (DecisionState.DELAYED, None, 1)
    refused_again(old, GRACE + 100)
    assert refusals(only(old, process_id)).count == 1
    assert old.process(process_id).state is ProcessState.RUNNING


def test_an_attempt_that_was_lost_begins_the_refusals_anew(versions: Versions) -> None:
    def never_ends(number: int, currency: str) -> None:
        raise Died(f"{number} {currency}")

    new, old = versions.world("2.0", never_ends), versions.world("1.0", price)
    process_id = new.start("order", 7, currency="SEK")
    assert old.pump() == 1
    pass_by(old, 2)
    new.scan()
    with pytest.raises(Died):
        new.pump("lost#1")
    assert only(new, process_id).refused is None, "an attempt has begun"
    assert new.store.requeues.requeue_given_back([f"{process_id}/start"], ["lost#1"], new_pass())
    requeued(old, process_id)
    assert refusals(only(old, process_id)).count == 1


def test_a_claim_that_was_given_back_unrun_does_not(versions: Versions) -> None:
    """As most of a batch is, if it takes long to give back the others."""
    new, old = versions.world("2.0", price_in), versions.world("1.0", price)
    process_id = new.start("order", 7, currency="SEK")
    assert old.pump() == 1
    first = refusals(only(old, process_id)).by
    pass_by(old, 2)
    new.scan()
    message = arguments(old.pop(["order"]) or {})
    assert single.claim(old.store, "order", *message, "w#1", 60)
    assert old.store.requeues.requeue_unrun({message[0]: message[1]}, "w#1", new_pass())
    assert only(old, process_id).waits_for_newer_worker
    requeued(old, process_id)
    again = refusals(only(old, process_id))
    assert again.count == 2 and again.by[0].since < first[0].since, "as long ago as it was, less the time that passed"


def requeued(world: World, process_id: str) -> None:
    """The worker gets the message of the task, as it is queued now."""
    decision = only(world, process_id)
    assert decision.state is DecisionState.QUEUED and decision.pass_key is not None
    Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1").run(
        world.app.actors["order"], decision.id, decision.pass_key
    )


def test_refusals_of_many_versions_are_bounded() -> None:
    now, decision = datetime(2026, 1, 1, tzinfo=UTC), Decision(id="p/t", actor="order", pass_key="p" * 32, attempts=1)
    for version in range(refusing.MAX_VERSIONS + 3):
        decision = decision.evolve(refused=refusing.add_refusal(decision, str(version), UNKNOWN, now))
    assert [one.version for one in refusals(decision).by] == [str(number) for number in range(3, 19)]


def test_a_refusal_costs_nothing_of_the_retries(versions: Versions) -> None:
    def away(number: int, currency: str) -> None:
        del number, currency
        raise ConnectionRefusedError(111, "away")

    policy = Backoff(initial=1, coefficient=1, jitter=(0, 0), maximum=1, total=60)
    new, old = versions.world("2.0", away, retry=policy), versions.world("1.0", price, retry=policy)
    lives(new, "2.0")
    process_id = new.start("order", 7, currency="SEK")
    assert new.pump() == 1

    def retry() -> RetryState:
        found = only(new, process_id).retry
        assert found is not None
        return found

    first = retry()
    refused_again(old, 2)
    assert retry().count == first.count
    moved = timedelta(seconds=1 - 2)  # by the delay of the refusal, and by the time that passed
    assert (retry().since - first.since, retry().until - first.until) == (moved, moved)
    assert [finding for finding in findings(new, process_id) if finding == "TIME_IMPOSSIBLE"] == []


def findings(world: World, process_id: str) -> list[str]:
    return [finding.rule.value for finding in look(world.app.resources, process_id).findings]


def test_only_the_holder_of_the_claim_may_and_its_own_write_it_knows_again(versions: Versions) -> None:
    new, old = versions.world("2.0", price_in), versions.world("1.0", price)
    process_id = new.start("order", 7, currency="SEK")
    message = arguments(old.pop(["order"]) or {})
    claimed = single.claim(old.store, "order", *message, "w#1", 60)
    assert claimed is not None
    refused = refusing.add_refusal(claimed, "1.0", UNKNOWN, old.store.now())
    give_back = old.store.decisions.give_back_refused
    assert give_back(claimed, refused, None, 1.0)
    assert give_back(claimed, refused, None, 1.0), "asked again after a lost reply"
    assert not give_back(claimed, refused.evolve(pass_key="f" * 32), None, 1.0)
    assert refusals(only(old, process_id)).count == 1


def test_a_task_of_a_batch_is_given_back_and_the_others_go_on(versions: Versions, monkeypatch: Any) -> None:
    monkeypatch.setattr(Pace, "room", lambda *_: 8)
    new, old = versions.world("2.0", price_in), versions.world("1.0", price)
    calls = [(7, {}), (8, {"currency": "SEK"}), (9, {})]
    ids = [new.start("order", number, **named) for number, named in calls]
    found = [MessageId(*arguments(old.pop(["order"]) or {}), None) for _ in ids]
    intake = Intake(lambda _name, _most: [found.pop() for _ in found[:]], Pace(64))
    first = found.pop()
    slot = Slot(old.app.resources, old.app.outbox, old.app.actors, "w#1", intake=intake)
    assert slot.run(old.app.actors["order"], first.decision_id, first.pass_key) in (Result.FINISHED, Result.REFUSED)
    old.flush()
    assert [old.process(one).state for one in (ids[0], ids[2])] == [ProcessState.FINISHED] * 2
    decision = only(old, ids[1])
    assert (decision.state, decision.attempts, decision.in_batch) == (DecisionState.DELAYED, 0, None)


def test_a_damaged_record_of_refusals_holds_up_nothing(versions: Versions) -> None:
    new = versions.world("2.0", price_in)
    process_id = new.start("order", 7, currency="SEK")
    new.store.database["decisions"].update_one(
        {"_id": f"{process_id}/start"}, {"$set": {"refused": "often"}}, bypass_document_validation=True
    )
    assert new.pump() == 1
    assert new.process(process_id).result == '"7 SEK"'


def test_a_child_waits_as_well_and_is_taken_by_another_version(versions: Versions) -> None:
    """What its worker makes ready it claims on the spot, and gives back what it does not accept."""
    app, newer = (Recovery(versions.settings, version=version) for version in ("1.0", "2.0"))

    @app.process()
    def shop() -> Any:
        return charge.schedule(1, currency="SEK")

    @app.actor("charge")
    def charge(number: int, currency: str) -> str:
        return f"{number} {currency}"

    newer.actors |= app.actors
    older = World(versions.settings, app)
    newer_world = World(versions.settings, newer)
    process_id = older.start(shop)
    app.actors = {**app.actors, "charge": Recovery(versions.settings).actor("charge")(price)}
    older.pump()
    (child,) = (one for key, one in older.decisions(process_id).items() if key != "start")
    assert child.waits_for_newer_worker
    pass_by(older, 2)
    wait_until(lambda: newer_world.bring_to_end(process_id).state is ProcessState.FINISHED, 10, "its end")
    check_quiet(newer_world, process_id)


def test_a_refused_task_with_an_impossible_time_is_tried_again_at_once(versions: Versions) -> None:
    new, old = versions.world("2.0", price_in), versions.world("1.0", price)
    process_id = new.start("order", 7, currency="SEK")
    assert old.pump() == 1
    years = old.store.now() + timedelta(days=3000)
    old.store.database["decisions"].update_many({}, {"$set": {"eta": years, "recoveryTime": years}})
    old.store.catch_up(10)
    resources = new.app.resources
    done, _ = repair(resources, look(resources, process_id), "a test")
    assert done["TIME_IMPOSSIBLE"] == 1
    assert new.bring_to_end(process_id).result == '"7 SEK"'


def test_a_process_with_a_task_that_waits_is_found_by_an_index(versions: Versions) -> None:
    new, old = versions.world("2.0", price_in), versions.world("1.0", price)
    process_id = new.start("order", 7, currency="SEK")
    assert old.pump() == 1
    new.start("order", 8)
    old.store.catch_up(10)
    query = parse("refused", old.store.now())
    assert old.store.search.page(query, None, 10) == [process_id]
    cost = old.store.search.cost(query)
    assert (cost.candidates, cost.slow) == (("decisions by index refused",), False)
    assert (
        in_words(query)
        == "processes with a task that waits for a newer worker, or for one of the version that it is pinned to"
    )
