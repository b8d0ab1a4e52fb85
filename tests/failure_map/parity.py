"""One data set with every condition of the failure map, healthy processes and damaged records beside; and the ways by
which something of ours looks at it, each as the set of what it finds."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

from bson import Code

from recovery import health, operations
from recovery.errors import DamagedRecord, ProcessNotFound
from recovery.operations import OperationRequest, OperationWorker
from recovery.operations.kinds import checking
from recovery.records import Operation, OperationState
from recovery.records.ids import new_process_id
from recovery.repair import Repaired, Repairer
from recovery.rules import Finding, Rule
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner, WorkerScanner
from recovery.scan.scanner import Scanner
from recovery.search import parse
from recovery.settings import Settings
from recovery.store import definitions, schema
from recovery.sweep import sweep
from tests.documents import database_of
from tests.failure_map.faults import FAULTS, HOUR, Fault, begin, make_app, servers_were_down
from tests.fuzz.test_records import CASES, WRONG
from tests.scan.making import silent_workers
from tests.sweep import shapes
from tests.waiting import wait_until
from tests.world import World

Found = frozenset[tuple[str, str, str]]
"""(process, rule, record) of each finding."""
Documents = dict[str, list[dict[str, Any]]]
"""{collection: documents}."""
COLLECTIONS = (*schema.OF_PROCESSES, schema.INTERRUPTIONS, schema.ORDERS, schema.WORKERS)
HEALTHY = 2
"""Of each kind."""
OWN_QUEUES = {"no_actors": None, "actors_lag": timedelta(hours=2), "message_lost": None}
"""Faults that are of a queue: theirs is one of its own, with the age of the last message that was taken from it."""
UNPOLLED = {"audit", "part_no_actors"}


@dataclass(frozen=True)
class Case:
    """A process in one condition."""

    name: str
    process_id: str
    rule: Rule | None
    """What is wrong with it; None: nothing."""
    documents: Documents


def world_of(settings: Settings) -> World:
    """With long deadlines: what is found is found for what was done to it, and not since it is late, or since a queue
    was polled before Spark was started."""
    return World(settings, message_timeout=300.0, apply_timeout=5.0, idle_timeout=600.0, heartbeat_interval=600.0)


def random_cases(settings: Settings, chance: random.Random, count: int) -> Iterator[Case]:
    """Any shape with up to two fields of any record of another type."""
    now = world_of(settings).store.now()
    # Of custom ids no two are alike, whatever stands there.
    places = [case for case in CASES if case[0] in schema.OF_PROCESSES and case[1] != "customId"]
    for number in range(count):
        process_id, shape = new_process_id(), chance.choice([*shapes.HEALTHY, *shapes.BROKEN])
        documents, told = shape(process_id, now).to_documents(), [f"{number}: {shape.__name__}"]
        for collection, path, kind in chance.sample(places, chance.randrange(3)):
            if documents[collection]:
                _put(chance.choice(documents[collection]), path, WRONG[kind])
                told.append(f"{collection}.{path} as {kind}")
        yield Case(", ".join(told), process_id, None, documents)


def empty(world: World) -> None:
    world.lose_messages()
    for name in definitions.VALIDATORS:
        database_of(world.store)[name].delete_many({})


def of_faults(settings: Settings, faults: Iterable[Fault]) -> Iterator[Case]:
    """Real processes, brought half way and broken by hand."""
    for fault in faults:
        world = world_of(settings)
        empty(world)
        make_app(world)
        broken = begin(world, fault)
        fault.make(broken)
        found = {name: list(database_of(world.store)[name].find()) for name in COLLECTIONS}
        _settle_deadlines(found["decisions"], world.store.now())
        name = fault.make.__name__
        if name in OWN_QUEUES:
            found = {key: _renamed(some, {"part": f"part_{name}"}) for key, some in found.items()}
        yield Case(name, broken.id, fault.rule, found)


def _settle_deadlines(decisions: Iterable[dict[str, Any]], now: datetime) -> None:
    """What would be due while the ways are at it is due for all of them."""
    for decision in decisions:
        deadline = decision.get("recoveryTime")
        if isinstance(deadline, datetime) and now - HOUR < deadline < now + timedelta(minutes=1):
            decision["recoveryTime"] = now - HOUR


def of_shapes(settings: Settings) -> Iterator[Case]:
    """Processes as records that were made one by one."""
    now = world_of(settings).store.now()
    kinds: list[tuple[shapes.Shape, Rule | None]] = [(shape, None) for shape in shapes.HEALTHY * HEALTHY]
    for shape, rule in [*kinds, *shapes.BROKEN.items()]:
        process_id = new_process_id()
        yield Case(f"shape {shape.__name__}", process_id, rule, shape(process_id, now).to_documents())


SPOILT: list[tuple[str, str, Any]] = [
    ("processes", "state", "sleeping"),
    ("processes", "recoveryTime", "soon"),
    ("processes", "args", 1),
    ("processes", "result", 5),
    ("graphs", "finished", 3),
    ("graphs", "notFinished", "none"),
    ("graphs", "idleTimeout", "1"),
    ("decisions", "losses", "0"),
    ("decisions", "retry", {"soon": True}),
    ("decisions", "outcome.value", 7),
    ("decisions", "children", {"a": 1}),
    ("tasks", "args", [1]),
]
"""(collection, field, what another program wrote there)."""


def of_damage(settings: Settings) -> Iterator[Case]:
    """Fields of another type, in what is at rest and in what goes on."""
    now = world_of(settings).store.now()
    both = [(shape, one) for shape in (shapes.finished, shapes.running) for one in SPOILT]
    others: list[tuple[shapes.Shape, tuple[str, str, Any]]] = [
        (shapes.cycle, ("tasks", "args", [1])),
        # Of these an outline would be enough, but for the damage.
        (shapes.work_timeout, ("graphs", "idleTimeout", "1")),
        (shapes.work_timeout, ("tasks", "args", [1])),
        (shapes.start_not_registered, ("processes", "restartedAt", 5)),
        (shapes.broken, ("processes", "startTask", Code("f()"))),
    ]
    for shape, (name, field, value) in [*both, *others]:
        process_id = new_process_id()
        documents = shape(process_id, now).to_documents()
        _put(documents[name][0], field, value)
        yield Case(f"{shape.__name__}, {name}.{field}", process_id, Rule.RECORD_DAMAGED, documents)


def _put(document: dict[str, Any], field: str, value: object) -> None:
    """Where nothing leads there, where the way ends."""
    *outer, last = field.split(".")
    inner: Any = document
    for name in outer:
        further = inner.get(name) if isinstance(inner, dict) else None
        if isinstance(inner, list) and name.isdigit():  # it may be a list by what was put there before
            further = next(iter(inner[int(name) :]), None)
        if not isinstance(further, dict | list):
            last = name
            break
        inner = further
    if isinstance(inner, dict):
        inner[last] = value
    elif inner:
        inner[0] = value


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


def all_cases(settings: Settings) -> list[Case]:
    """Every condition that may stand beside the others."""
    together = [fault for fault in FAULTS if fault.make is not servers_were_down]
    return [*of_shapes(settings), *of_damage(settings), *of_faults(settings, together)]


def fill(settings: Settings, cases: Sequence[Case], *, polled: bool = True) -> World:
    """A world with these processes, whose queues hold a message each, but where one is lost; and are `polled`."""
    world, queues = world_of(settings), set[str]()
    empty(world)
    make_app(world)
    world.tell()
    filled = {name: [one for case in cases for one in case.documents.get(name, ())] for name in COLLECTIONS}
    for name, documents in filled.items():
        if documents:
            database_of(world.store)[name].insert_many(documents, bypass_document_validation=True)
            queues |= {one["actor"] for one in documents if type(one.get("actor")) is str}
    for queue in queues - {"part_message_lost"}:
        world.redis.lpush(queue, "some message")
    if polled:
        poll(world, queues - UNPOLLED)
    world.store.catch_up(10)
    return world


def poll(world: World, queues: Set[str]) -> None:
    """What workers tell of these queues."""
    now = world.store.now()
    taken = {f"part_{name}": now - age for name, age in OWN_QUEUES.items() if age is not None}
    taken[shapes.QUEUE_THAT_MOVED] = now - timedelta(minutes=1)
    world.store.queues.polled({queue: taken.get(queue) for queue in queues})
    world.store.queues.seen_empty(queues & {"part_message_lost"}, now - timedelta(minutes=1), timedelta())


def by_check(world: World, cases: Iterable[Case]) -> Found:
    """`recovery check`, process by process."""
    found = set[tuple[str, str, str]]()
    for case in cases:
        try:
            found |= _of(health.look(world.app.resources, case.process_id).findings)
        except ProcessNotFound:
            continue
    return frozenset(found)


def by_operation(world: World, selection: str = "", **more: Any) -> Found:
    """An operation `check`, in a recovery worker."""
    asked = OperationRequest("check", selection, everything=not selection, spark=False, **more)
    operation = operations.start(world.app.resources, asked, "a test")
    worker = OperationWorker(world.app.resources, world.app.outbox, "worker")

    def is_over() -> bool:
        worker.run_once(5)
        return operations.find(world.app.resources, operation.id).state is OperationState.FINISHED

    with patch.object(checking, "SHOWN", 1000):
        wait_until(is_over, 60, "the check to be over")
    return results(world, operations.find(world.app.resources, operation.id))


def selected(world: World, selection: str) -> set[str]:
    """The processes that a selection matches."""
    return {*world.store.search.page(parse(selection, now=world.store.now()), None, 10_000)}


def by_spark(world: World) -> Found:
    """A sweep."""
    return results(world, operations.find(world.app.resources, sweep(world.settings, thorough=True).operation))


def results(world: World, operation: Operation) -> Found:
    found = set[tuple[str, str, str]]()
    for page in world.store.operation_results.pages(operation.id):
        for result in page:
            assert sum(result.counts.values()) == len(result.findings), f"more than a result names: {result}"
            found |= {(result.process, one.rule, one.record) for one in result.findings}
    return frozenset(found)


def by_scanners(world: World, only: str | None = None) -> Found:
    """All scanners, or one of them, each run to its end with repairs that do nothing. Processes and graphs with a
    deadline are due."""
    past = world.store.now() - timedelta(seconds=1)
    soon = {"recoveryTime": {"$type": "date", "$lt": past + timedelta(days=1)}}
    for name in ("graphs", "processes"):
        due = {"$set": {"recoveryTime": past}}
        database_of(world.store)[name].update_many(soon, due, bypass_document_validation=True)
    found = set[tuple[str, str, str]]()

    def note(_: Repairer, findings: Iterable[Finding], *__: object) -> Repaired:
        found.update(_of(findings))
        return Repaired()

    def tell(_: Scanner[Any], damage: DamagedRecord) -> None:
        found.add((str(damage.record).partition("/")[0], Rule.RECORD_DAMAGED.value, str(damage.record)))
        pass_over(_, damage)

    pass_over = Scanner._pass_over
    resources, outbox = world.app.resources, world.app.outbox
    with patch.object(Repairer, "repair", note), patch.object(Scanner, "_pass_over", tell):
        workers = WorkerScanner(resources, outbox, silent_workers(resources))
        chosen = [workers, *(kind(resources, outbox) for kind in (DecisionScanner, GraphScanner, ProcessScanner))]
        for scanner in chosen if only is None else [one for one in chosen if one.name == only]:
            result = scanner.run_once()
            assert result.error is None, result
    return frozenset(found)


def due_decisions(cases: Iterable[Case], now: datetime) -> set[str]:
    """Decisions that the decision scanner looks at, and their processes: those whose deadline is past, or lacking, or
    whose message is lost."""
    found = set[str]()
    for case in cases:
        for decision in case.documents[schema.DECISIONS]:
            deadline, live = decision.get("recoveryTime"), decision.get("state") in ("queued", "working", "delayed")
            lost = case.rule is Rule.MESSAGE_LOST and decision.get("state") == "queued"
            if lost or (live and deadline is None) or (isinstance(deadline, datetime) and deadline <= now):
                found |= {decision["_id"], case.process_id}
    return found


def _of(findings: Iterable[Finding]) -> Found:
    return frozenset((one.process_id, one.rule.value, one.record) for one in findings)


Way = Callable[[World, list[Case]], Found]
AS_A_WHOLE = "operation, as a whole"
"""By which the others are measured."""
WAYS: dict[str, Way] = {
    "check": by_check,
    AS_A_WHOLE: lambda world, _: by_operation(world, thorough=True),
    "operation, not thorough": lambda world, _: by_operation(world),
    "operation, by pages": lambda world, _: by_operation(world, rate=1e6),
    "scanners": lambda world, _: by_scanners(world),
}
"""In this order: scanners move deadlines."""
