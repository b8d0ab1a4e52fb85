"""An attempt that failed is tried again later, by its record: when, how often, and when no more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery import Backoff, Reason, Recovery, Request, RetryAction
from recovery.errors import InputError, ProcessBroken
from recovery.health import look, repair
from recovery.records import Decision, DecisionState, ProcessState, RetryState
from tests.store import single
from tests.world import World

SOON = Backoff(initial=0.01, coefficient=1, jitter=(0, 0), maximum=0.01, total=60)
"""Waited for in the slot."""
NEXT_SCAN = Backoff(initial=1, coefficient=1, jitter=(0, 0), maximum=1, total=60)
"""The shortest that is waited for in the record."""
LATER = Backoff(initial=60, coefficient=2, jitter=(0, 0), maximum=3600, total="24h")
AWAY = ConnectionRefusedError(111, "away")


def failing(times: int, error: BaseException = AWAY) -> Callable[[], str]:
    """A function that fails so many times, then gives 'done'."""
    left = [times]

    def step() -> str:
        if left[0]:
            left[0] -= 1
            raise error
        return "done"

    return step


def start(world: World, function: Callable[..., Any], **settings: Any) -> str:
    """Start a process of one task, and run its first attempt."""
    process_id = world.start(world.app.process("order", **settings)(function))
    world.pump()
    return process_id


def only(world: World, process_id: str) -> Decision:
    decision = world.store.decisions.get(f"{process_id}/start")
    assert decision is not None
    return decision


def retry_of(decision: Decision) -> RetryState:
    assert decision.retry is not None
    return decision.retry


def pass_by(world: World, seconds: float) -> None:
    """Have this time pass: every time in the decisions is so much earlier."""
    earlier = {"$subtract": ["$$value", 1000 * seconds]}
    fields = ("recoveryTime", "eta", "enqueuedAt", "queuedAt", "retry.since", "retry.until", "retry.failedAt")
    for field in fields:
        moved = {"$let": {"vars": {"value": f"${field}"}, "in": earlier}}
        world.store.database["decisions"].update_many({field: {"$exists": True}}, [{"$set": {field: moved}}])


def test_a_transient_fault_costs_a_delay(world: World) -> None:
    process_id = start(world, failing(2), retry=NEXT_SCAN)
    process = world.bring_to_end(process_id)
    assert process.state is ProcessState.FINISHED
    decision = only(world, process_id)
    assert (decision.attempts, decision.timeouts, retry_of(decision).count) == (3, 0, 2)


def test_it_waits_in_its_record_and_holds_no_worker(world: World) -> None:
    process_id = start(world, failing(1), retry=LATER)
    decision = only(world, process_id)
    assert decision.state is DecisionState.DELAYED
    assert decision.worker is None
    held = retry_of(decision)
    assert (held.code, held.reason, held.kind) == (21001, "NODE_NOT_AVAILABLE", "ConnectionRefusedError")
    assert (held.count, held.cycle, held.attempt, held.pass_key) == (1, 1, 1, decision.pass_key)
    assert decision.recovery_time is not None
    assert timedelta(seconds=59) < decision.recovery_time - held.failed_at < timedelta(seconds=61)
    assert held.until - held.since == timedelta(hours=24)
    world.scan()
    assert not world.pump(), "queued before its time"
    pass_by(world, 61)
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED


def test_a_retry_that_is_planned_for_years_from_now_is_tried_soon(world: World) -> None:
    """Another program wrote its time, which is after the last moment at which it may be tried."""
    process_id = start(world, failing(1), retry=LATER)
    years = {"$set": {"eta": world.store.now() + timedelta(days=3000)}}
    world.store.database["decisions"].update_one({"_id": f"{process_id}/start"}, years)
    repair(world.app.resources, look(world.app.resources, process_id), "a test")
    pass_by(world, 61)  # its deadline was not touched
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED


def test_by_default_what_a_catalogue_knows_is_retried_and_what_none_knows_is_not(world: World) -> None:
    process_id = start(world, failing(1))
    delay = only(world, process_id).recovery_time - retry_of(only(world, process_id)).failed_at  # type: ignore[operator]
    assert timedelta(seconds=59) < delay < timedelta(seconds=91)
    other = world.start(world.app.process("other")(failing(1, ValueError("no"))))
    world.pump()
    process = world.process(other)
    assert process.state is ProcessState.BROKEN
    assert process.error is not None
    assert (process.error.code, process.error.reason) == (40000, "UNKNOWN")
    assert process.error.no_retry == "no catalogue knows it"


def test_the_delays_grow_by_the_policy_and_the_same_code_goes_on(world: World) -> None:
    process_id = start(world, failing(9), retry=LATER)
    delays = []
    for _ in range(4):
        decision = only(world, process_id)
        assert decision.recovery_time is not None
        delays.append(round((decision.recovery_time - retry_of(decision).failed_at).total_seconds()))
        pass_by(world, delays[-1] + 1)
        world.scan()
        world.pump()
    assert delays == [60, 120, 240, 480]
    assert retry_of(only(world, process_id)).cycle == 5


def test_another_code_starts_a_cycle_and_one_that_comes_back_goes_on(world: World) -> None:
    errors: list[BaseException] = [AWAY, AWAY, TimeoutError("slow"), TimeoutError("slow"), AWAY]

    def step() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    process_id = start(world, step, retry=LATER)
    cycles = []
    while errors:
        held = retry_of(only(world, process_id))
        cycles.append((held.cycle, held.count))
        pass_by(world, 1000)
        world.scan()
        world.pump()
    held = retry_of(only(world, process_id))
    assert [*cycles, (held.cycle, held.count)] == [(1, 1), (2, 2), (1, 3), (2, 4), (3, 5)]
    assert held.reasons == ("NODE_NOT_AVAILABLE", "TIMEOUT_IN_FLIGHT")
    assert held.since < held.failed_at, "when its code came first"


def test_a_task_that_is_retried_is_overtaken(world: World) -> None:
    """Tasks that do not wait for each other have no order."""
    done: list[str] = []
    fails = [AWAY]

    @world.app.actor(retry=NEXT_SCAN)
    def step(name: str) -> None:
        if name == "first" and fails:
            raise fails.pop()
        done.append(name)

    @world.app.process()
    def order() -> None:
        step.schedule("first")
        step.schedule("second")

    assert world.bring_to_end(world.start(order)).state is ProcessState.FINISHED
    assert done == ["second", "first"]


def test_retries_end_with_their_total_duration(world: World) -> None:
    policy = Backoff(initial=60, coefficient=1, jitter=(0, 0), maximum=60, total=150)
    process_id = start(world, failing(9), retry=policy)
    for _ in range(2):
        pass_by(world, 61)
        world.scan()
        world.pump()
    process = world.process(process_id)
    assert process.state is ProcessState.BROKEN
    assert process.error is not None
    assert (process.error.code, process.error.exhausted) == (40005, 21001), "a code of those that are not retriable"
    assert process.error.no_retry == "its total duration of 150s is over after 2 retries"
    assert only(world, process_id).attempts == 3


@pytest.mark.parametrize("off", [None, False])
def test_switched_off_the_first_error_breaks_the_process(world: World, off: Any) -> None:
    process_id = start(world, failing(1), retry=off)
    process = world.process(process_id)
    assert process.state is ProcessState.BROKEN
    assert process.error is not None
    assert process.error.no_retry == "retry is off"
    assert only(world, process_id).retry is None


def test_what_is_not_idempotent_is_retried_only_where_the_first_try_did_nothing(world: World) -> None:
    refused = start(world, failing(1), retry=NEXT_SCAN, idempotent=False)
    assert only(world, refused).state is DecisionState.DELAYED
    reset = world.start(world.app.process("reset", idempotent=False)(failing(1, ConnectionResetError(104, "x"))))
    world.pump()
    process = world.process(reset)
    assert process.state is ProcessState.BROKEN
    assert process.error is not None and process.error.no_retry is not None
    assert process.error.no_retry.endswith("and it is not idempotent")


def test_a_type_says_for_its_actors_and_an_actor_and_a_task_say_for_themselves(world: World) -> None:
    def away() -> None:
        raise AWAY

    plain = world.app.actor("plain")(away)
    own = world.app.actor("own", retry=Backoff(initial=20, jitter=(0, 0)))(away)

    @world.app.process(retry=Backoff(initial=10, jitter=(0, 0)))
    def order() -> None:
        plain.schedule()
        own.schedule()
        plain.options(retry=Backoff(initial=30, jitter=(0, 0))).schedule()
        plain.options(retry=None, fallible=True).schedule()

    process_id = world.start(order)
    world.pump()
    found = [
        (decision.actor, round((decision.recovery_time - retry_of(decision).failed_at).total_seconds()))
        for decision in world.decisions(process_id).values()
        if decision.state is DecisionState.DELAYED and decision.recovery_time is not None
    ]
    assert sorted(found) == [("own", 20), ("plain", 10), ("plain", 30)]
    failed = [one for one in world.decisions(process_id).values() if one.outcome and one.outcome.error]
    assert [one.outcome.error.no_retry for one in failed if one.outcome and one.outcome.error] == ["retry is off"]


def test_an_operators_word_counts_for_the_next_failure(world: World) -> None:
    from recovery.engine.operators.overrides import ActorOverrides

    process_id = start(world, failing(9), retry=LATER)
    ActorOverrides(world.app.resources).set("order", {"retry_initial": 5.0, "retry_maximum": 5.0})
    pass_by(world, 61)
    world.scan()
    world.pump()
    decision = only(world, process_id)
    assert decision.recovery_time is not None
    assert round((decision.recovery_time - retry_of(decision).failed_at).total_seconds()) == 5
    ActorOverrides(world.app.resources).set("order", {"retry": False})
    pass_by(world, 61)
    world.scan()
    world.pump()
    assert world.process(process_id).state is ProcessState.BROKEN


def test_a_server_that_says_when_is_obeyed(world: World) -> None:
    class Answer(Exception):
        class response:
            status_code = 503
            headers = {"Retry-After": "300"}  # noqa: RUF012

    Answer.__module__, Answer.__qualname__ = "requests.exceptions", "HTTPError"
    process_id = start(world, failing(1, Answer()), retry=LATER)
    decision = only(world, process_id)
    assert decision.recovery_time is not None
    assert round((decision.recovery_time - retry_of(decision).failed_at).total_seconds()) == 300


def test_no_retry_begins_after_the_tasks_own_time(world: World) -> None:
    process_id = start(world, failing(1), retry=LATER, task_timeout=50)
    process = world.process(process_id)
    assert process.state is ProcessState.BROKEN
    assert process.error is not None
    assert (process.error.kind, process.error.no_retry) == (
        "ConnectionRefusedError",
        "its task_timeout comes before the next retry",
    )


def test_a_task_that_was_queued_at_the_end_of_the_calendar_is_retried(world: World) -> None:
    process_id = world.start(world.app.process("order", retry=LATER, task_timeout=50)(failing(1)))
    last = datetime.max.replace(tzinfo=UTC)
    world.store.database["decisions"].update_one({"_id": f"{process_id}/start"}, {"$set": {"enqueuedAt": last}})
    world.pump()
    assert retry_of(only(world, process_id)).count == 1


def test_a_time_that_is_cut_while_it_waits_ends_it(world: World) -> None:
    from recovery.engine.operators.overrides import ActorOverrides

    process_id = start(world, failing(1), retry=LATER)
    ActorOverrides(world.app.resources).set("order", {"task_timeout": 30.0})
    pass_by(world, 31)
    process = world.bring_to_end(process_id)
    assert process.error is not None
    assert process.error.kind == "TaskTimeout"


def test_a_time_that_is_cut_and_given_back_brings_no_retry_sooner(world: World) -> None:
    """The deadline was moved for the task_timeout; the time of the next retry was not."""
    from recovery.engine.operators.overrides import ActorOverrides

    process_id, overrides = start(world, failing(1), retry=LATER), ActorOverrides(world.app.resources)
    before = only(world, process_id)
    overrides.set("order", {"task_timeout": 30.0})
    overrides.unset("order", ["task_timeout"])
    assert only(world, process_id).recovery_time != before.recovery_time, "moved, and not moved back"
    pass_by(world, 31)
    world.scan()
    world.pump()
    decision = only(world, process_id)
    assert (decision.state, decision.attempts) == (DecisionState.DELAYED, before.attempts)
    assert decision.recovery_time == decision.eta, "looked at again when it is due"
    pass_by(world, 300)
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED


def test_a_value_that_comes_while_it_waits_is_taken(world: World) -> None:
    """From the attempt before, whose deadline was past: a value is a value."""
    process_id = start(world, failing(1), retry=LATER)
    decision = only(world, process_id)
    from recovery.records import Outcome

    outcome = Outcome(pass_key="0" * 32, value="1")
    taken = single.finish(world.store, decision, outcome, (), accept_first=True, worker="old#1", apply_timeout=0.3)
    assert taken
    assert world.bring_to_end(process_id).result == "1"


def test_only_the_holder_of_the_pass_may_and_its_own_write_it_knows_again(world: World) -> None:
    process_id = start(world, failing(1), retry=LATER)
    decision = only(world, process_id)
    state = retry_of(decision)
    retry_later = world.store.decisions.retry_later
    assert retry_later(decision, state, 60), "asked again after a lost reply"
    assert not retry_later(decision, state.evolve(pass_key="f" * 32, count=2), 60)
    assert retry_of(only(world, process_id)).count == 1, "an attempt was counted twice"


def test_what_a_task_says_that_can_not_be_says_nothing(world: World) -> None:
    """As another program may have stored it."""
    order = world.app.process("order")(failing(1))
    process_id = world.start(order.options(retry=LATER))
    stored = {"retry.coefficient": 0.5, "retry.initial": -1.0, "retry.total": 1e300}
    world.store.database["tasks"].update_one(
        {"_id": f"{process_id}/start"}, {"$set": stored}, bypass_document_validation=True
    )
    world.pump()
    decision = only(world, process_id)
    assert (decision.state, decision.recovery_time is not None) == (DecisionState.DELAYED, True)


def test_a_restart_begins_anew(world: World) -> None:
    errors = [AWAY, ValueError("no"), AWAY]

    def step() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    process_id = start(world, step, retry=SOON)
    assert world.bring_to_end(process_id).state is ProcessState.BROKEN
    assert world.app.restart(process_id) == 1
    assert only(world, process_id).retry is None
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    assert retry_of(only(world, process_id)).count == 1


class Asked:
    """A strategy that notes what it was asked, and answers something."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Any, ...]] = []

    async def retry_after(self, request: Request, reason: Reason) -> RetryAction:
        reasons = sorted(one.name for one in request.retry_reasons)
        self.asked.append((request.retry_attempts, reasons, request.idempotent, dict(request.context), reason.name))
        assert request.retry_strategy is self
        if isinstance(self.answer, BaseException):
            raise self.answer
        found: RetryAction = self.answer
        return found


def test_a_strategy_of_its_own_decides_and_reads_the_context(world: World) -> None:
    strategy = Asked(RetryAction(0.01))
    order = world.app.process("order", retry=strategy)(failing(2))
    process_id = world.start(order.options(context={"customer": "acme"}))
    assert world.bring_to_end(process_id).state is ProcessState.FINISHED
    context = {"customer": "acme"}
    assert strategy.asked == [
        (0, [], True, context, "NODE_NOT_AVAILABLE"),
        (1, ["NODE_NOT_AVAILABLE"], True, context, "NODE_NOT_AVAILABLE"),
    ]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (RuntimeError("oops"), "the strategy Asked raised RuntimeError: oops"),
        (SystemExit(3), "the strategy Asked raised SystemExit"),
        ("soon", "the strategy Asked answered 'soon'; it has to give a RetryAction"),
        (RetryAction(-1), "the strategy Asked wants a retry after -1; it has to be a duration"),
        (RetryAction.no_retry(), "the strategy Asked wants no retry"),
    ],
)
def test_one_that_raises_or_answers_nonsense_fails_the_task_with_that_said(world: World, answer: Any, why: str) -> None:
    process_id = start(world, failing(1), retry=Asked(answer))
    process = world.process(process_id)
    assert process.state is ProcessState.BROKEN
    assert process.error is not None
    assert (process.error.kind, process.error.no_retry) == ("ConnectionRefusedError", why)


def test_a_fallible_task_is_retried_too(world: World) -> None:
    part = world.app.actor("part", retry=SOON)(failing(1))

    @world.app.process()
    def order() -> Any:
        return part.options(fallible=True).schedule()

    assert world.run(order) == "done"


def test_it_is_logged_with_its_fields(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    process_id = start(world, failing(1), retry=LATER)
    (record,) = [one for one in caplog.records if getattr(one, "retry_reason", None)]
    assert "ConnectionRefusedError: [Errno 111] away; code 21001, reason NODE_NOT_AVAILABLE; retry 1 in 60" in (
        record.getMessage()
    )
    fields = vars(record)
    assert (fields["recovery_process"], fields["recovery_task"], fields["error_code"], fields["retry_count"]) == (
        process_id, "start", 21001, 1,
    )  # fmt: skip


def test_an_application_says_for_all_that_say_nothing(world: World) -> None:
    app = Recovery(world.settings, retry=Backoff(initial=5, jitter=(0, 0)))
    by_app = app.process("by_app")(lambda: None)
    own = app.process("own", retry=None)(lambda: None)
    actor = app.actor("step", retry_initial="7s")(lambda: None)
    assert by_app.process_type is not None and own.process_type is not None
    assert (by_app.process_type.retry_initial, own.process_type.retry) == (5, False)
    assert actor.preferences.retry_initial == 7
    strategy = Asked(RetryAction(0.01))
    other = Recovery(world.settings, retry=strategy)
    assert other.actor("step")(lambda: None).strategy is strategy
    assert other.process("order")(lambda: None).strategy is strategy
    assert other.actor("own", retry=None)(lambda: None).strategy is None
    with pytest.raises(InputError, match="Recovery: retry=3 must be a Backoff"):
        Recovery(world.settings, retry=3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"retry": 3}, "actor step: retry=3 must be a Backoff"),
        ({"retry": Asked}, "must be a Backoff(...), None for no retry, or a strategy"),
        ({"retry": Backoff(), "retry_total": 100000.0}, "retry_total is given twice"),
        ({"retry_initial": "2h"}, "actor step: retry_maximum (1h by default) must be at least retry_initial"),
        ({"retry_coefficient": 0.5}, "retry_coefficient must be a number from 1 to 1,000, not 0.5"),
        ({"retry_jitter_least": 40.0}, "retry_jitter_most (30s by default) must be at least retry_jitter_least"),
        ({"worker_timeout": "ten"}, "actor step: worker_timeout='ten': "),
        ({"idempotent": 1}, "idempotent must be True or False, not 1"),
    ],
)
def test_bad_settings_are_errors_that_say_what_to_do(settings: dict[str, Any], told: str) -> None:
    app = Recovery()
    with pytest.raises(InputError) as raised:
        app.actor("step", **settings)(lambda: None)
    assert told in str(raised.value)
    assert not app.actors


def test_times_may_be_texts_and_timedeltas() -> None:
    app = Recovery()
    actor = app.actor("step", worker_timeout="10m", retry_total=timedelta(hours=2))(lambda: None)
    assert (actor.preferences.worker_timeout, actor.preferences.retry_total) == (600, 7200)


def test_options_and_context_are_checked(world: World) -> None:
    step = world.app.process("step")(lambda: None)
    bad: list[dict[str, Any]] = [
        {"retry": 3},
        {"context": 3},
        {"context": {"x": object()}},
        {"context": {"x": "y" * 9000}},
    ]
    for options in bad:
        with pytest.raises(InputError):
            step.options(**options)
    with pytest.raises(InputError, match="a process starts at once"):
        world.start(step.options(delay=3))


def test_a_broken_process_names_what_it_was(world: World) -> None:
    process_id = start(world, failing(1), retry=None)
    with pytest.raises(ProcessBroken):
        world.app.result(process_id, timeout=1)
