"""The code does what the model says: each update in every world, and every step in its place.

So what is proven of the model is proven of what runs. A guard that is dropped changes records in a world where the
model's step does nothing; a step that is taken in another order, or that the model does not know, leads to records that
no step of the model leads to.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest

from recovery import Settings
from recovery.engine.apply.interruption import interrupt
from recovery.records import Decision, DecisionState, ErrorInfo, Refused, RetryState, TaskLimit, VersionRefusal
from recovery.records.ids import new_pass, new_process_id, record_id
from recovery.scan import overdue_tasks
from recovery.store import Finished, schema
from tests import world
from tests.faults import Died, Fault, Kind, Plan, installed, threads_held, under
from tests.model import protocol
from tests.model.protocol import MAX_PASS, World
from tests.model.tied import (
    ACTORS,
    CHILD,
    HOLDER,
    NOTHING,
    TASKS,
    Read,
    changes,
    outcome,
    pass_of,
    read,
    records,
    worker,
    worlds,
    written,
)
from tests.seldom import by_turns
from tests.stateful.passing import Passing
from tests.store import single
from tests.store.writing import put
from tests.world import by_message_only

pytestmark = pytest.mark.thorough

HOUR = 3600.0
ERROR = ErrorInfo(kind="WorkTimeout", message="no")


class Tied(world.World):
    """`parent` schedules `child`, and returns its value; nothing waits for it but the process."""

    def __init__(self, settings: Settings, fails: str = "") -> None:
        super().__init__(settings)
        self.failed: set[str] = set()

        @self.app.actor(max_work_timeouts=100)
        def child() -> int:
            fail("child")
            return 1

        @self.app.process(max_work_timeouts=100)
        def parent() -> Any:
            fail("parent")
            return child.schedule()

        def fail(task: str) -> None:
            if fails == task:
                raise ValueError("no")
            if fails == f"{task} at first" and task not in self.failed:
                self.failed.add(task)
                raise ConnectionRefusedError("away")


# Each update, in every world.


class Case:
    """One process of the real database, and an update about to be made to it."""

    def __init__(self, real: Tied, task: str, number: int) -> None:
        self.store, self.resources, self.task = real.store, real.app.resources, task
        self.process_id = new_process_id()
        self.key, self.actor, self.pass_key = record_id(self.process_id, TASKS[task]), ACTORS[task], pass_of(number)

    @property
    def claimed(self) -> Decision:
        """As an attempt has it that claimed it under this pass."""
        return Decision(id=self.key, actor=self.actor, state=DecisionState.WORKING, pass_key=self.pass_key, attempts=1)

    def finish(self, *, error: bool) -> None:
        children = (CHILD,) if self.task == "S" and not error else ()
        single.finish(
            self.store,
            self.claimed,
            outcome(error, self.pass_key),
            children,
            accept_first=True,
            worker=HOLDER,
            apply_timeout=60,
        )

    def interrupt(self) -> None:
        interrupt(self.resources, self.claimed.evolve(outcome=outcome(True, self.pass_key)))


RETRY = RetryState(
    count=1, cycle=1, since=datetime(2026, 1, 1, tzinfo=UTC), until=datetime(2026, 1, 2, tzinfo=UTC),
    failed_at=datetime(2026, 1, 1, tzinfo=UTC), attempt=1, pass_key=pass_of(98), code=21001,
    reason="NODE_NOT_AVAILABLE", kind="ConnectionRefusedError", message="away",
)  # fmt: skip
REFUSED = Refused(
    count=1, attempts=0, pass_key=pass_of(98),
    by=(VersionRefusal(version="1.0", since=datetime(2026, 1, 1, tzinfo=UTC), why="missing a required argument"),),
)  # fmt: skip
LIMIT = TaskLimit(seconds=1.0, forced=True)
CHILDREN = {"S": {TASKS["C"]: ()}, "C": dict[str, tuple[str, ...]]()}

AT_WORK: dict[tuple[str, str], Callable[[Case], object]] = {
    ("popped", "claim"): lambda case: single.claim(case.store, case.actor, case.key, case.pass_key, HOLDER, 60),
    ("run", "finish"): lambda case: case.finish(error=False),
    ("run", "fail"): lambda case: case.finish(error=True),
    ("run", "retry later"): lambda case: case.store.decisions.retry_later(case.claimed, RETRY, HOUR),
    ("run", "give back, its call refused"): lambda case: case.store.decisions.give_back_refused(
        case.claimed, REFUSED, None, HOUR
    ),
    ("children", "insert children of"): lambda case: case.store.decisions.insert(
        [Decision(id=record_id(case.process_id, CHILD.id), actor=CHILD.actor)] if case.task == "S" else []
    ),
    ("graph", "apply"): lambda case: single.apply(
        case.store, case.process_id, 0, [Finished(TASKS[case.task], CHILDREN[case.task], ())]
    ),
    ("break", "break the process"): Case.interrupt,
    ("end", "finish the process, if it is complete"): lambda case: single.finish_process(
        case.store, case.process_id, 0, "1"
    ),
}
"""{(where a worker is in the model, its step): what that is in the code}."""

OF_RULES: dict[str, dict[str, Callable[[Case], object]]] = {
    "WORK_TIMEOUT": {
        "timed_out": lambda case: case.store.requeues.timed_out([case.key], new_pass()),
        "requeue_worker_lost": lambda case: case.store.requeues.requeue_worker_lost([case.key], [HOLDER], new_pass()),
        "requeue_given_back": lambda case: case.store.requeues.requeue_given_back([case.key], [HOLDER], new_pass()),
    },
    "WORK_TIMEOUT later": {
        "delay_lost": lambda case: case.store.requeues.delay_lost([case.key], HOUR, new_pass()),
    },
    "MESSAGE_LOST": {
        "requeue_message_lost": lambda case: case.store.requeues.requeue_message_lost(
            [case.key], case.store.now(), new_pass()
        ),
    },
    "DUE": {
        "enqueue_due": lambda case: case.store.requeues.enqueue_due([case.key], new_pass()),
    },
    "TASK_TIMEOUT": {
        "out_of_time": lambda case: case.store.task_ends.out_of_time([case.key], case.actor, LIMIT, ERROR, new_pass()),
    },
    "READY_NOT_QUEUED": {
        "enqueue_ready": lambda case: case.store.requeues.enqueue_ready([case.key], new_pass()),
    },
}
"""{rule: {update: what repairs it}}. A batch of two in one is another query, so `timed_out` is made for both."""


def moves(world: World) -> Iterator[tuple[str, str, int, Callable[[Case], object], World]]:
    """(what, task, pass, update, the world after it by the model) of each update that may be made in a world."""
    for task in "SC":
        for number in range(1, MAX_PASS):
            for (place, name), update in AT_WORK.items():
                if place in ("children", "graph", "break", "end") and number > 1:
                    continue  # whatever its pass is
                if place == "break" and not world.graph:
                    continue  # it would be made
                if place == "end" and not (world.ended or (world.graph and not world.open)):
                    continue  # whoever applied the last task knows that it is complete
                at = world._replace(workers=((place, task, number),))
                after = {label[0]: after for label, after, _ in protocol._worker(at, 0)}
                yield f"{place}: {name}", task, number, update, after.get(name, world)
        if world.ended or getattr(world, task).pas == MAX_PASS:
            continue
        after = {label[0]: after for label, after, _ in protocol._task_rules(world, task) if len(label) == 2}
        for rule, updates in OF_RULES.items():
            # That what is ready is open, and in a graph, is what the rule looks at; the update takes what waits.
            if rule == "READY_NOT_QUEUED" and getattr(world, task).state == "waiting" and rule not in after:
                continue
            for name, update in updates.items():
                yield f"{rule}: {name}", task, 1, update, after.get(rule, world)


def agrees(world: World, after: World, found: Read) -> bool:
    """Whether what is there is what the model says, passes included: kept, or new."""
    if found.written != written(after):
        return False
    for task in "SC":
        was, now = getattr(world, task), getattr(after, task)
        if now.state in ("queued", "running"):
            kept = found.passes[task] == pass_of(now.pas)
            known = found.passes[task] in {pass_of(number) for number in range(MAX_PASS + 1)}
            if not (kept if now.pas == was.pas else not known):
                return False
    return True


def test_each_update_does_in_every_world_what_the_models_step_does(emptied: Settings) -> None:
    real = Tied(emptied)
    cases: list[tuple[str, World, World, Case, Callable[[Case], object]]] = []
    made = []
    for before in worlds():
        for what, task, number, update, after in moves(before):
            case = Case(real, task, number)
            made += records(before, case.process_id, real.store)
            cases.append((f"{what} of {task}, pass {number}", before, after, case, update))
    put(real.store, *made)
    for _, _, _, case, update in cases:
        update(case)
    found = read(real.store)
    assert len(cases) > 1000, "the model has become smaller: which worlds can't be reached any more?"
    wrong = [
        f"{what} in {written(before)}, {before.S}, {before.C}: {found[case.process_id]}, by the model {written(after)}"
        for what, before, after, case, _ in cases
        if not agrees(before, after, found[case.process_id])
    ]
    assert not wrong, f"{len(wrong)} of {len(cases)} differ:\n" + "\n".join(wrong[:10])


# Every step, in its place.

STEPS: dict[str, set[str]] = {
    "Graphs.insert": {"START_NOT_REGISTERED graph"},
    "Decisions.insert_queued": {"START_NOT_REGISTERED decision"},
    "Decisions.claim": {"claim"},
    "Decisions.claim_ready": {"claim on the spot"},
    "Decisions.finish": {"finish", "fail"},
    "Decisions.insert": {"insert children of"},
    "Graphs.apply": {"apply"},
    "Requeues.enqueue_ready": {"enqueue"},
    "Requeues.timed_out": {"WORK_TIMEOUT"},
    "Requeues.delay_lost": {"WORK_TIMEOUT later"},
    "UndecidedAttempts.retry_later": {"retry later"},
    "Requeues.enqueue_due": {"DUE"},
    "Processes.finish": {"finish the process, if it is complete"},
    "Processes.break_": {"break the process"},
}
"""{step of the code that changes what is written: the model's steps that it may be}. No other one may;
`requeue_message_lost` and the like change passes alone, which is tried above."""


class Trace:
    """What is written after each step, held against the model."""

    def __init__(self, real: Tied, known: dict[tuple[Any, Any], set[str]]) -> None:
        self._store, self._known = real.store, known
        self._before = NOTHING.written
        self._taken: Counter[str] = Counter()
        self.changed: list[tuple[str, int]] = []
        """Of the steps that changed something which one it was, and which of its name."""

    def step(self, name: str, _arguments: tuple[Any, ...], _result: Any) -> None:
        """A step was taken."""
        now = next(iter(read(self._store).values()), NOTHING).written
        before, self._before = self._before, now
        self._taken[name] += 1
        if before == now:
            return
        by_model = self._known.get((before, now), set())
        assert by_model & STEPS.get(name, set()), (
            f"{name} took {before} to {now}, which by the model is done by {sorted(by_model) or 'nothing'}"
        )
        self.changed.append((name, self._taken[name] - 1))


class Here(Executor):
    """No thread beside: what is asked for is done at once."""

    def __init__(self, **_: object) -> None: ...

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


@pytest.fixture(scope="module")
def known() -> dict[tuple[Any, Any], set[str]]:
    return changes()


FAILS = ["", "parent", "child", "parent at first", "child at first"]


@pytest.mark.parametrize(("fails", "way"), by_turns(FAILS, ["on the spot", "by message"]))
@pytest.mark.parametrize("part", [2, pytest.param(1, marks=pytest.mark.soak)], ids=["half", "all"])
def test_every_step_is_one_of_the_models_wherever_a_process_was_cut_off(
    emptied: Settings, known: dict[tuple[Any, Any], set[str]], fails: str, way: str, part: int
) -> None:
    """Cut off after a step that wrote something, or before a push, and brought on by others: at half of these places,
    by chance, and at all of them in a long run."""
    by_message = way == "by message"
    # One step at a time, so that it is known which of them changed something.
    one_thread = patch.object(overdue_tasks, "ThreadPoolExecutor", Here)
    with threads_held(), one_thread, by_message_only() if by_message else nullcontext():
        whole = _cut_off(emptied, known, fails, Plan())
        taken = {name for name, _ in whole}
        assert not STEPS.keys() - taken - _not_taken(fails, by_message), "steps that nothing took"
        plans = [Fault(Kind.DIES_AFTER, place, name) for name, place in whole]
        plans += [
            Fault(Kind.DIES, place, "Pipeline.execute") for place in range(2 if by_message and fails != "parent" else 1)
        ]
        seed = random.randrange(2**32)
        print(f"seed {seed}")
        for fault in random.Random(seed).sample(plans, -(-len(plans) // part)):
            _cut_off(emptied, known, fails, Plan(fault))


def _cut_off(
    settings: Settings, known: dict[tuple[Any, Any], set[str]], fails: str, plan: Plan
) -> list[tuple[str, int]]:
    """Run a process under this plan, and if it was cut off bring it to its end; the steps that changed something."""
    doomed = Tied(settings, fails)
    for name in (schema.PROCESSES, schema.TASKS, schema.DECISIONS, schema.GRAPHS, schema.INTERRUPTIONS):
        doomed.store.database[name].delete_many({})
    doomed.redis.flushdb()
    doomed.tell()
    trace = Trace(doomed, known)
    with installed(trace.step):
        try:
            with under(plan):
                doomed.start("parent")
                doomed.pump("doomed#1")
                if fails.endswith("at first"):
                    _bring_on(doomed)  # over the delay
        except Died:
            pass
        else:
            assert not plan.faults, f"{plan} was not reached"
        _bring_on(Tied(settings, fails))
    return trace.changed


def _bring_on(real: Tied) -> None:
    """By scanners, with all deadlines past, and by another worker, until it has ended."""
    passing = Passing(real.store.database)
    for _ in range(20):
        found = read(real.store)
        if not found or next(iter(found.values())).written.ended:
            return
        real.store.workers.beat(worker(), 600)
        passing.pass_by(HOUR)
        real.pump()  # polls the queues as well
        real.store.catch_up(30)  # what waits is read as committed, and a busy disk lags behind by many rounds
        real.scan()
    raise AssertionError(f"not brought to an end: {read(real.store)}")


def _not_taken(fails: str, by_message: bool) -> set[str]:
    """Steps that such a process does not take if it is not cut off."""
    ends_well = fails not in ("parent", "child")
    unused = {"Requeues.timed_out", "Requeues.delay_lost", "Processes.break_" if ends_well else "Processes.finish"}
    unused |= set() if fails.endswith("at first") else {"UndecidedAttempts.retry_later", "Requeues.enqueue_due"}
    unused |= {"Decisions.claim_ready"} if by_message else {"Requeues.enqueue_ready"}
    if fails == "parent":
        unused |= {"Decisions.insert", "Graphs.apply", "Requeues.enqueue_ready", "Decisions.claim_ready"}
    return unused
