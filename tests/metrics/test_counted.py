"""What is counted of what happens: exactly the counters that tell of it move, and no other one does."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Histogram
from prometheus_client.metrics import MetricWrapperBase
from redis.client import Pipeline
from redis.exceptions import ConnectionError as RedisConnectionError

from recovery import heartbeat, metrics
from recovery.drill.drill_report import DrillReport, measured
from recovery.drill.sightings import Probe, PromisedTime, Step
from recovery.engine import Slot, declare_schedules, outages
from recovery.engine.operators.overrides import ProcessTypeOverrides
from recovery.errors import StartRefused, StoreUnavailable
from recovery.metrics.registry import observe_all
from recovery.queue.message import UNSIGNED
from recovery.records import ErrorInfo, Worker
from recovery.records.ids import new_pass
from recovery.repair import Repairer
from recovery.retry import REASONS, SHIPPED
from recovery.rules import Rule
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner, ScheduleScanner, WorkerScanner, rescue
from recovery.settings import Settings
from recovery.store.lifecycle.decisions import Decisions
from recovery.worker.messages.intake import MessageIntake
from recovery.worker.messages.stale import drop_stale
from tests.docs.blocks import DOCS
from tests.queues import polled_and_empty
from tests.scan.making import silent_workers
from tests.store import single
from tests.world import World, arguments

DAY = timedelta(days=1)
RAN = {"attempt_seconds actor=order": 1, "queue_seconds actor=order": 1}


def ended(state: str) -> dict[str, int]:
    """A process that ended so."""
    return {f"processes_ended state={state} type=order": 1, f"process_seconds state={state} type=order": 1}


class Counted(World):
    """One process type, `order`, whose task does what a test says; and what is there of one process of it."""

    def __init__(self, settings: Settings) -> None:
        # Nothing falls overdue by itself, however long a test takes.
        super().__init__(settings, apply_timeout=60.0, message_timeout=60.0, idle_timeout=60.0)
        self.task: Callable[[], Any] = lambda: 1

    def started(self, **preferences: Any) -> str:
        """A process that waits for a worker."""
        self.app.process("order", **preferences)(lambda: self.task())
        self.process_id = self.start("order")
        self.tell()
        return self.process_id

    @property
    def decision_id(self) -> str:
        return f"{self.process_id}/start"

    def claimed(self, **preferences: Any) -> str:
        """One whose start is worked on by somebody who brings no answer."""
        self.started(**preferences)
        message = self.pop(["order"])
        assert message is not None
        assert single.claim(self.store, "order", *arguments(message), "gone#1", 60)
        return self.process_id

    def overdue(self, collection: str = "decisions", **fields: Any) -> None:
        past = {"recoveryTime": self.store.now() - DAY}
        assert self.store.database[collection].update_many({}, {"$set": past | fields}).matched_count

    def run(self) -> None:  # type: ignore[override]
        """Take the message and run the task."""
        message = self.pop(["order"])
        assert message is not None
        slot = Slot(self.app.resources, self.app.outbox, self.app.actors, "w#1")
        slot.run(self.app.actors["order"], *arguments(message))
        self.app.outbox.flush()

    def requeue(self) -> None:
        """As somebody does who is not counted here."""
        assert self.store.requeues.requeue_given_back([self.decision_id], ["w#1"], new_pass())

    def scan_decisions(self) -> None:
        DecisionScanner(self.app.resources, self.app.outbox).run_once()

    def break_whole(self) -> None:
        error = ErrorInfo(kind="ProcessTimeout", message="late")
        assert self.store.processes.break_(self.process_id, 0, error)


def scanned(rule: str = "", *, name: str = "decisions", repaired: bool = True, result: str = "done") -> dict[str, int]:
    """A scan, and one finding of this rule: on a task, if decisions are scanned."""
    actor = "order" if name == "decisions" else ""
    found = {f"scans result={result} scanner={name}": 1, f"scan_seconds scanner={name}": 1}
    if rule:
        found[f"findings actor={actor} rule={rule}"] = 1
    if rule and repaired:
        found[f"repairs actor={actor} rule={rule} source=auto"] = 1
    return found


def requeued(rule: str) -> dict[str, int]:
    return {f"requeues actor=order reason={rule}": 1, "requeue_lag_seconds": 1}


ATTEMPT_LOST = {"work_timeouts": 1, "actor_work_timeouts actor=order": 1}

Event = Callable[[Counted], Iterator[None]]
EVENTS: dict[str, tuple[Event, dict[str, int]]] = {}
"""{what happens: (how to have it happen, the counters that move, by how much)}"""


def moves(*parts: dict[str, int]) -> Callable[[Event], Event]:
    """What is done after the `yield` moves these counters; before it all is made ready for that."""

    def add(happens: Event) -> Event:
        EVENTS[happens.__name__.replace("_", " ")] = (happens, {k: v for part in parts for k, v in part.items()})
        return happens

    return add


@moves({"processes_started type=order": 1})
def a_process_is_started(world: Counted) -> Iterator[None]:
    yield
    world.started()


@moves(scanned(name="schedules"), {"processes_started type=order": 1, "schedule_slots outcome=started type=order": 1})
def a_slot_of_a_schedule_is_due(world: Counted) -> Iterator[None]:
    world.app.process("order", schedule="1h")(lambda: 1)
    world.tell()
    declare_schedules(world.app.resources, world.app.actors, world.app.schedules)
    minute = world.store.now() - timedelta(seconds=30)
    world.overdue("schedules", nextSlot=minute)
    yield
    ScheduleScanner(world.app.resources, world.app.outbox).run_once()


@moves({"processes_started type=order": 1, "push_failures": 1})
def redis_does_not_take_a_message(world: Counted) -> Iterator[None]:
    yield
    with patch.object(Pipeline, "execute", side_effect=RedisConnectionError("away")):
        world.started()


@moves(RAN, {"attempts actor=order outcome=finished": 1, **ended("finished")})
def a_task_ends_and_its_process_with_it(world: Counted) -> Iterator[None]:
    world.started()
    yield
    world.run()


def not_retried(code: int, reason: str, why: str) -> dict[str, int]:
    return {f"retries_refused actor=order code={code} reason={reason} why={why}": 1}


@moves({"queue_seconds actor=order": 1, "calls_refused actor=order": 1, "attempts actor=order outcome=refused": 1})
def the_code_of_a_worker_does_not_accept_a_call(world: Counted) -> Iterator[None]:
    world.started()
    args = {"call.args": '[[],{"currency":"SEK"}]'}
    world.store.database["decisions"].update_one({"_id": world.decision_id}, {"$set": args})
    yield
    world.run()


@moves(
    RAN,
    {"attempts actor=order outcome=failed": 1, **ended("broken")},
    not_retried(40000, "UNKNOWN", "not_retriable"),
)
def a_task_fails(world: Counted) -> Iterator[None]:
    world.task = lambda: [][0]
    world.started()
    yield
    world.run()


def _away() -> None:
    raise ConnectionRefusedError("away")


@moves(
    RAN,
    {
        "attempts actor=order outcome=retried": 1,
        "retries actor=order code=21001 reason=NODE_NOT_AVAILABLE": 1,
    },
)
def a_task_is_tried_again(world: Counted) -> Iterator[None]:
    world.task = _away
    world.started()
    yield
    world.run()


def refused(why: str, **preferences: Any) -> None:
    """An event: a task that is not tried again, since its settings say so."""

    def happens(world: Counted) -> Iterator[None]:
        world.task = _away
        world.started(**preferences)
        yield
        world.run()

    happens.__name__ = f"a_task_is_not_tried_again_{why}"
    moves(
        RAN,
        {"attempts actor=order outcome=failed": 1, **ended("broken")},
        not_retried(21001, "NODE_NOT_AVAILABLE", why),
    )(happens)


class Never:
    async def retry_after(self, request: Any, reason: Any) -> Any:
        del request, reason


refused("off", retry=None)
refused("strategy", retry=Never())
refused("deadline", task_timeout=5)
refused("exhausted", retry_initial=0, retry_jitter_least=2, retry_total=1)


@moves(
    RAN,
    {"attempts actor=order outcome=failed": 1, **ended("broken")},
    not_retried(21003, "SOCKET_CLOSED_WHILE_IN_FLIGHT", "not_idempotent"),
)
def what_is_not_idempotent_is_not_tried_again(world: Counted) -> Iterator[None]:
    def reset() -> None:
        raise ConnectionResetError("reset")

    world.task = reset
    world.started(idempotent=False)
    yield
    world.run()


@moves(
    RAN,
    {"attempts actor=order outcome=stale result": 1, "stale_results reason=result": 1},
    {"rejected_writes guard=pass step=finish": 1},
)
def a_result_comes_too_late(world: Counted) -> Iterator[None]:
    world.started(accept_first=False)
    world.task = world.requeue
    yield
    world.run()


@moves(RAN, {"attempts actor=order outcome=claim lost": 1, "stale_results reason=claim lost": 1})
def an_attempt_learns_that_its_claim_is_lost(world: Counted) -> Iterator[None]:
    def late() -> None:
        world.requeue()
        heartbeat()

    world.task = late
    world.started()
    yield
    world.run()


@moves({"attempts actor=order outcome=not ready": 1, "queue_seconds actor=order": 1})
def a_task_is_not_ready(world: Counted) -> Iterator[None]:
    world.started()
    world.store.database["tasks"].delete_many({})
    world.store.database["decisions"].update_many({}, {"$unset": {"call": ""}})
    yield
    world.run()


@moves({"stale_results reason=message": 1, "rejected_writes guard=pass step=claim": 1})
def a_message_is_stale(world: Counted) -> Iterator[None]:
    world.started()
    world.store.requeues.requeue_message_lost([world.decision_id], world.store.now(), new_pass())
    yield
    world.run()


@moves({"stale_results reason=message": 1})
def a_message_names_no_task_or_pass(world: Counted) -> Iterator[None]:
    world.started()
    slot = Slot(world.app.resources, world.app.outbox, world.app.actors, "w#1")
    yield
    slot.run(world.app.actors["order"], "nonsense", "nonsense")


@moves({"stale_results reason=message": 1})
def a_message_that_is_next_is_stale(world: Counted) -> Iterator[None]:
    world.started()
    world.store.requeues.requeue_message_lost([world.decision_id], world.store.now(), new_pass())
    yield
    assert drop_stale(world.app.resources, "order") == 1


@moves({"messages_refused reason=malformed": 1})
def a_text_is_no_message_of_ours(_: Counted) -> Iterator[None]:
    intake = MessageIntake(["order"], [], UNSIGNED, sweeps=False)
    yield
    assert intake.command(b"nonsense") is None


@moves({"requeues actor=order reason=GIVEN_BACK": 1})
def a_claim_whose_answer_was_lost_is_given_back(world: Counted) -> Iterator[None]:
    world.started()
    real = Decisions.claim

    def claim(*args: Any) -> None:
        real(*args)
        raise StoreUnavailable("away")

    yield
    with patch.object(Decisions, "claim", claim), pytest.raises(StoreUnavailable):
        world.run()


@moves(scanned("WORK_TIMEOUT"), requeued("WORK_TIMEOUT"), ATTEMPT_LOST)
def an_attempt_is_overdue(world: Counted) -> Iterator[None]:
    world.claimed()
    world.overdue()
    yield
    world.scan_decisions()


@moves(scanned("WORK_TIMEOUT"), ATTEMPT_LOST, {**ended("broken")})
def an_attempt_is_overdue_for_the_last_time(world: Counted) -> Iterator[None]:
    world.claimed(max_work_timeouts=1)
    world.overdue()
    yield
    world.scan_decisions()


@moves(
    {"findings actor=order rule=WORKER_LOST": 1, "repairs actor=order rule=WORKER_LOST source=auto": 1},
    requeued("WORKER_LOST"),
)
def a_worker_is_lost(world: Counted) -> Iterator[None]:
    world.claimed()
    yield
    rescue(world.app.resources, Repairer(world.app.resources, world.app.outbox), ["gone"])


@moves(scanned(name="workers"), {"workers_lost": 1})
def a_worker_is_found_to_be_gone(world: Counted) -> Iterator[None]:
    world.store.workers.beat(Worker(id="gone", name="gone", host="", pid=1, pid_started=1), -1)
    yield
    WorkerScanner(world.app.resources, world.app.outbox, silent_workers(world.app.resources)).run_once()


@moves(scanned("MESSAGE_LOST"), requeued("MESSAGE_LOST"))
def a_message_is_lost(world: Counted) -> Iterator[None]:
    world.started()
    world.redis.flushdb()
    polled_and_empty(world.store, "order", ago=60.0)
    world.overdue(queuedAt=world.store.now() - DAY)
    yield
    world.scan_decisions()


@moves(scanned("SERVERS_WERE_DOWN", repaired=False))
def nobody_takes_messages(world: Counted) -> Iterator[None]:
    world.started()
    world.overdue()
    yield
    world.scan_decisions()


@moves(scanned("TASK_TIMEOUT"), {**ended("broken")})
def a_tasks_time_is_over(world: Counted) -> Iterator[None]:
    world.started(task_timeout=60)
    world.overdue(enqueuedAt=world.store.now() - DAY)
    yield
    world.scan_decisions()


@moves(scanned("PROCESS_TIMEOUT", name="processes"), {"process_timeouts type=order": 1})
def a_processs_time_is_over(world: Counted) -> Iterator[None]:
    world.started(process_timeout=60)
    world.overdue("processes", startedAt=world.store.now() - DAY)
    yield
    ProcessScanner(world.app.resources, world.app.outbox).run_once()


@moves(
    scanned("PROCESS_TIMEOUT", name="processes"),
    {"process_timeouts type=order": 1, **ended("broken")},
)
def a_process_is_broken_for_its_time(world: Counted) -> Iterator[None]:
    world.started(process_timeout=60, break_after_process_timeout=True)
    world.overdue("processes", startedAt=world.store.now() - DAY)
    yield
    ProcessScanner(world.app.resources, world.app.outbox).run_once()


@moves(scanned("FINISHED_TOO_EARLY", name="graphs", repaired=False))
def something_can_only_be_told(world: Counted) -> Iterator[None]:
    world.started()
    single.finish_process(world.store, world.process_id, 0, "1")
    world.overdue("graphs")
    yield
    GraphScanner(world.app.resources, world.app.outbox).run_once()


@moves(RAN, {"attempts actor=order outcome=finished": 1, "failed_steps": 1})
def what_is_finished_can_not_be_applied(world: Counted) -> Iterator[None]:
    world.started()
    updates = [{"q": {"_id": world.process_id}, "u": {"$set": {"finished": "nonsense"}}}]
    world.store.database.command("update", "graphs", updates=updates, bypassDocumentValidation=True)
    yield
    world.run()


@moves(scanned(), {"damaged_records": 1})
def a_record_can_not_be_read(world: Counted) -> Iterator[None]:
    world.started()
    fields = {"state": "finished", "outcome": {"pass": 7}, "recoveryTime": world.store.now() - DAY}
    updates = [{"q": {"_id": world.decision_id}, "u": {"$set": fields}}]
    world.store.database.command("update", "decisions", updates=updates, bypassDocumentValidation=True)
    yield
    world.scan_decisions()


@moves(scanned(result="cut off"))
def a_scan_is_cut_off(world: Counted) -> Iterator[None]:
    yield
    with patch.object(Decisions, "without_deadline", side_effect=StoreUnavailable("away")):
        world.scan_decisions()


@moves(
    RAN,
    {"attempts actor=order outcome=finished": 1, **ended("finished")},
    {"circuit_breaker_changes server=mongodb state=open": 1, "circuit_breaker_changes server=mongodb state=closed": 1},
)
def the_database_is_away_for_a_moment(world: Counted) -> Iterator[None]:
    outages._breaker.cache_clear()  # none is open since another test
    world.started()
    real, answers = Decisions.finish, [False, True]

    def finish(*args: Any, **options: Any) -> bool:
        if answers.pop(0):
            return real(*args, **options)
        raise StoreUnavailable("away")

    yield
    with patch.object(Decisions, "finish", finish):
        world.run()


@moves({"starts_refused reason=FAILED_ADMIN type=order": 1})
def a_start_meets_a_marker(world: Counted) -> Iterator[None]:
    world.task = lambda: [][0]
    world.started(markers=True)
    world.run()
    yield
    with suppress(StartRefused):
        world.start("order")


@moves({"starts_refused reason=DISABLED type=order": 1})
def a_type_is_disabled(world: Counted) -> Iterator[None]:
    world.started()
    ProcessTypeOverrides(world.app.resources).disable("order", "a test")
    yield
    with suppress(StartRefused):
        world.start("order")


@moves({"operations operation=restart": 1})
def an_operator_restarts_a_task(world: Counted) -> Iterator[None]:
    world.task = lambda: [][0]
    world.started()
    world.run()
    yield
    world.app.restart(world.process_id)


@moves({"operations operation=set running": 1})
def an_operator_sets_a_process_running(world: Counted) -> Iterator[None]:
    world.started()
    world.break_whole()
    yield
    world.app.restart(world.process_id)


@moves({"operations operation=abort": 1, **ended("aborted")})
def an_operator_aborts_a_process(world: Counted) -> Iterator[None]:
    world.started()
    yield
    world.app.abort(world.process_id, "a test")


@moves(
    {"drill_seconds step=start": 2},
    {"drill_probes outcome=ok step=start": 1},
    {"drill_probes outcome=late step=start": 1},
    {"drill_probes outcome=failed step=start": 1},
)
def a_drill_is_over(_: Counted) -> Iterator[None]:
    yield
    probes = [Probe(Step.START, "P", "T", seconds) for seconds in (0.1, 2.0, None)]
    DrillReport("d", 1, 1.0, measured(probes, {Step.START: PromisedTime(1.0, "a moment")}), ()).count()


NAMES = {
    metric._name.removeprefix("recovery_") for metric in vars(metrics).values() if isinstance(metric, MetricWrapperBase)
}


def counted() -> dict[str, float]:
    """{metric and its labels: how much}; of histograms, how often."""
    return {
        " ".join([family.name.removeprefix("recovery_"), *(f"{k}={v}" for k, v in sorted(sample.labels.items()))]): (
            sample.value
        )
        for family in REGISTRY.collect()
        if family.name.startswith("recovery_")
        for sample in family.samples
        if sample.name.endswith(("_total", "_count"))
    }


@pytest.mark.parametrize("name", EVENTS)
def test_what_tells_of_it_is_counted_and_nothing_else(emptied: Settings, name: str) -> None:
    happens, moved = EVENTS[name]
    steps = happens(Counted(emptied))
    next(steps)
    before = counted()
    assert next(steps, "over") == "over"
    after = counted()
    assert {key: value - before.get(key, 0) for key, value in after.items() if value != before.get(key, 0)} == moved


@pytest.mark.parametrize(("set_running", "seconds"), [(None, 3 * 86_400), (timedelta(hours=1), 3600)])
def test_how_long_a_process_took(emptied: Settings, set_running: timedelta | None, seconds: float) -> None:
    """From its start, or from when it was last set running again; in days, since it may take months."""
    world = Counted(emptied)
    world.task = world.app.actor("pay")(lambda: 1).schedule
    world.started()
    now = world.store.now()
    times = {"startedAt": now - timedelta(days=3)} | ({"restartedAt": now - set_running} if set_running else {})
    world.store.database["processes"].update_one({}, {"$set": times})
    taken = metrics.PROCESS_SECONDS.labels("order", "finished")._sum
    before = taken.get()
    world.run()
    assert seconds <= taken.get() - before < seconds + 60


def test_a_start_that_is_no_time_keeps_no_process_from_its_end(emptied: Settings) -> None:
    world = Counted(emptied)
    process_id = world.started()
    updates = [{"q": {"_id": process_id}, "u": {"$set": {"startedAt": "nonsense"}}}]
    world.store.database.command("update", "processes", updates=updates, bypassDocumentValidation=True)
    world.run()
    assert world.store.database["processes"].find_one({"_id": process_id}, {"state": True})["state"] == "finished"


def test_of_every_counter_it_is_known_what_moves_it() -> None:
    assert {key.partition(" ")[0] for _, moved in EVENTS.values() for key in moved} == NAMES


def test_every_label_that_moves_is_on_the_page() -> None:
    """Those that are neither a rule nor of the application: whoever writes an alert finds them there."""
    page = (DOCS / "metrics.md").read_text()
    for key in {key for _, moved in EVENTS.values() for key in moved}:
        name, *labels = re.split(r" (?=\w+=)", key)
        (row,) = re.findall(rf"^\| `recovery_{name}(?:_total)?` \|.*$", page, re.MULTILINE)
        for label, _, value in (one.partition("=") for one in labels):
            where = page if label == "scanner" else row  # told once
            known = {*REASONS, "order", *(str(code.number) for one in SHIPPED for code in one.codes()), "40000"}
            assert not value or value in known or value in Rule.__members__ or f"`{value}`" in where, (
                f"{value} of {name}"
            )


@pytest.mark.parametrize("amounts", [[], [0.0], [0.1, 0.100001, 0.25, 59.9, 60, 1e9, 3600, 3600.5, 0.0, 0.1]])
def test_all_at_once_is_each_by_itself(amounts: list[float]) -> None:
    registries = CollectorRegistry(), CollectorRegistry()
    bounds = (0.1, 0.25, 60, 3600)
    each, together = (Histogram("seconds", "Some.", registry=one, buckets=bounds) for one in registries)
    for amount in amounts:
        each.observe(amount)
    observe_all(together, amounts)
    told = [{s.name + str(s.labels): s.value for m in one.collect() for s in m.samples} for one in registries]
    assert {k: v for k, v in told[0].items() if "created" not in k} == {
        k: pytest.approx(v) for k, v in told[1].items() if "created" not in k
    }
