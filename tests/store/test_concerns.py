"""With which concerns every command is sent that the life of processes takes, whatever the address says."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo import MongoClient, ReadPreference
from pymongo.collection import Collection
from pymongo.monitoring import CommandFailedEvent, CommandListener, CommandStartedEvent, CommandSucceededEvent, register

from recovery import ProcessBroken, Recovery, Settings
from recovery.engine.operators.abort import abort_process
from recovery.engine.operators.schedules import Schedules, declare_schedules
from recovery.health.mongodb_server import concerns
from recovery.lazy_imports import Part
from recovery.records import Phase
from recovery.scan import DecisionScanner
from recovery.search import parse
from recovery.store import Store, layout, schema
from recovery.store.concerns import current, overridden
from recovery.store.views.lifeline_queries import Claim
from tests.faults import layer
from tests.store import single
from tests.world import World

ACKNOWLEDGED, RESTORABLE = {"w": "majority", "j": True}, {"w": 1}
WRITES = ("insert", "update", "delete", "findAndModify")
READS = ("find", "aggregate", "count", "distinct")
OTHERS = "readConcernLevel=majority&readPreference=secondaryPreferred&w=0&journal=false&wtimeoutMS=1"
"""What an address may say, and what would be wrong for each of our handles."""


class Commands(CommandListener):
    """The commands of one database that this process sent."""

    def __init__(self) -> None:
        self.database = ""
        self.sent: list[tuple[str, str, dict[str, Any]]] = []

    def started(self, event: CommandStartedEvent) -> None:
        if event.database_name == self.database and event.command_name in WRITES + READS:
            collection = event.command[event.command_name]
            self.sent.append((event.command_name, collection, dict(event.command)))

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None: ...


commands = Commands()
register(commands)  # for clients that are made from now on


@pytest.fixture
def listened(settings: Settings) -> Iterator[World]:
    """A world whose commands are noted."""
    join = "&" if "?" in settings.mongo_uri else "?"
    changed = settings.model_copy(update={"mongo_uri": f"{settings.mongo_uri}{join}{OTHERS}"})
    world = World(changed)
    layout.create(world.store.database)
    commands.database, commands.sent = settings.database, []
    yield world
    commands.database = ""


def handles(store: Store) -> Iterator[tuple[str, Collection[Any]]]:
    """All collections that the store's parts hold."""
    parts = {name: getattr(store, name) for name, declared in vars(Store).items() if isinstance(declared, Part)}
    for name, part in parts.items():
        for attribute, value in vars(part).items() if hasattr(part, "__dict__") else ():
            if isinstance(value, Collection):
                yield f"{name}.{attribute}", value
            if isinstance(value, dict):
                yield from (
                    (f"{name}.{attribute}[{key}]", one) for key, one in value.items() if isinstance(one, Collection)
                )


def test_every_handle_names_its_concerns(listened: World) -> None:
    found = dict(handles(listened.store))
    assert len(found) > 20
    for name, collection in {**found, "the database's own": listened.store.database["any"]}.items():
        assert collection.read_preference == ReadPreference.PRIMARY, name
        assert collection.read_concern.level in ("local", "majority", "linearizable"), name
        assert collection.write_concern.document in (ACKNOWLEDGED, RESTORABLE), name


def live(world: World) -> None:
    """Processes that finish, break, are restarted, time out, are aborted; and what operators set."""
    app, store = world.app, world.store
    refuse = [True]

    @app.actor()
    def echo(value: int) -> int:
        return value

    @app.actor()
    def pay(value: int) -> int:
        if refuse[0]:
            raise ValueError("refused")
        return value

    @app.actor(restart_after_work_timeout=False)
    def hang() -> None: ...

    @app.process(markers=True)
    def order(value: int) -> Any:
        return pay.schedule(echo.schedule(echo.schedule(value)))

    @app.process(process_timeout=0.001, break_after_process_timeout=True)
    def late() -> Any:
        return hang.schedule()

    broken, aborted, timed_out = world.start(order, 1), world.start(order, 2, custom_id="two"), world.start(late)
    world.pump(serve={name: actor for name, actor in app.actors.items() if name != "hang"})
    with pytest.raises(ProcessBroken):
        app.result(broken, timeout=5)
    assert world.pop(["hang"]) is not None
    (lost,) = store.database["decisions"].find({"actor": "hang"})
    assert single.claim(store, "hang", lost["_id"], lost["pass"], "gone#1", 0.001)
    assert DecisionScanner(app.resources, app.outbox).run_once().error is None
    refuse[0] = False
    app.restart(broken)
    abort_process(app.resources, aborted, "a test")
    world.bring_to_end(broken)
    world.scan()
    with pytest.raises(ProcessBroken):
        app.result(timed_out, timeout=5)
    assert store.actors.override("echo", {"worker_timeout": 5.0})
    assert store.actors.block("echo")
    assert store.actors.unblock("echo")
    assert world.app.result(broken, timeout=5) == 1
    schedules = Schedules(app.resources)
    schedules.add("hourly", "late", {"schedule": "1h"}, "a test")
    declare_schedules(app.resources, app.actors, {})
    schedules.trigger("hourly", "a test")
    schedules.remove("hourly")


def promises(name: str, collection: str, command: dict[str, Any]) -> Iterator[str]:
    """What of a write somebody is told, or what has consequences that no failover undoes."""
    lasting = (schema.INTERRUPTIONS, schema.MARKERS, schema.ACTORS, schema.PROCESS_TYPES, schema.SCHEDULES)
    if collection in (*lasting, schema.AUDIT_LOG):
        yield collection
    written: list[Any] = command.get("updates") or [{"u": command.get("update", [])}]
    for update in written if name in ("update", "findAndModify") else ():
        stages = update["u"] if isinstance(update["u"], list) else [update["u"]]
        fields = {field: value for stage in stages for field, value in stage.get("$set", {}).items()}
        if collection == schema.DECISIONS and "outcome" in fields:
            yield "an end of a task"
        if collection == schema.DECISIONS and "restarts" in fields:
            yield "a restart"
        if collection == schema.PROCESSES and ("state" in fields or any("$replaceWith" in stage for stage in stages)):
            yield "a start or an end of a process"


def test_what_is_told_is_written_with_a_majority_and_every_command_says_how(listened: World) -> None:
    live(listened)
    seen: Counter[str] = Counter()
    for name, collection, command in commands.sent:
        where = f"{name} of {collection}: {str(command)[:300]}"
        if name in WRITES:
            assert command.get("writeConcern") in (ACKNOWLEDGED, RESTORABLE), where
            told = list(promises(name, collection, command))
            seen.update(told)
            assert not told or command["writeConcern"] == ACKNOWLEDGED, f"{told[0]} is not acknowledged: {where}"
        else:
            assert command.get("readConcern", {}).get("level") in ("local", "majority", "linearizable"), where
            assert command.get("$readPreference", {"mode": "primary"}) == {"mode": "primary"}, where
    assert seen["an end of a task"] > 8
    assert seen["a restart"] >= 1
    assert seen["a start or an end of a process"] >= 8
    assert seen[schema.INTERRUPTIONS] >= 2
    assert seen[schema.MARKERS] >= 2, "written, and cleared by the restart that finishes"
    assert seen[schema.ACTORS] >= 3
    assert seen[schema.SCHEDULES] >= 4
    assert seen[schema.AUDIT_LOG] >= 8, "what was begun, and what came of it"


def test_that_redis_lost_its_data_is_written_with_a_majority(listened: World) -> None:
    listened.store.queues.lost(["echo"], datetime.now(UTC))
    writes = [command for name, collection, command in commands.sent if name in WRITES and collection == schema.QUEUES]
    assert [command["writeConcern"] for command in writes] == [ACKNOWLEDGED]


READ_AS_A_MAJORITY_HAS_IT: dict[str, Callable[[Store], object]] = {
    "DecisionQueries.briefs": lambda store: store.decisions.briefs(["p/t"]),
    "DecisionQueries.effect_sizes": lambda store: store.decisions.effect_sizes(["p/t"]),
    "DecisionQueries.effects": lambda store: store.decisions.effects(["p/t"]),
    "IdleTimeouts.of_graphs": lambda store: store.idle_timeouts.of_graphs(["p"]),
    "DecisionQueries.get_committed": lambda store: store.decisions.get_committed("p/t"),
    "DecisionQueries.of_processes": lambda store: list(store.decisions.of_processes(["p"])),
    "DecisionQueries.outcomes": lambda store: store.decisions.outcomes(["p/t"]),
    "DecisionQueries.parents": lambda store: store.decisions.parents(["p/t"]),
    "DecisionQueries.schedules": lambda store: store.decisions.schedules("p/t", "child"),
    "DecisionQueries.values": lambda store: list(store.decisions.values({"p/t": "a pass"})),
    "GraphRecovery.committed_ends": lambda store: store.graphs.committed_ends({"p": ["t"]}),
    "GraphRecovery.last_repair": lambda store: store.graphs.last_repair("p"),
    "Hung.fates": lambda store: store.hung.fates([Claim("p/t", "a pass", 1)]),
    "Censuses.count": lambda store: store.censuses.count(),
    "Censuses.last": lambda store: store.censuses.last(60),
    "ProcessNames.is_taken": lambda store: store.process_names.is_taken("order", "one"),
    "Markers.find": lambda store: store.markers.find("order"),
    "ProcessQueries.arguments": lambda store: store.processes.arguments("p"),
    "OperationRanges.all": lambda store: store.operation_ranges.all(1, Phase.PLAN),
    "ProcessQueries.committed_briefs": lambda store: store.processes.committed_briefs(["p"]),
    "ProcessQueries.committed_epochs": lambda store: store.processes.committed_epochs(["p"]),
    "ProcessQueries.committed_lives": lambda store: store.processes.committed_lives(["p"]),
    "ProcessQueries.committed_over": lambda store: store.processes.committed_over(["p"]),
    "ProcessQueries.ended": lambda store: store.processes.ended(["p"]),
    "ProcessQueries.get_committed": lambda store: store.processes.get_committed("p"),
    "ProcessQueries.is_there": lambda store: store.processes.is_there("p"),
    "ProcessQueries.shown": lambda store: store.processes.shown("p", 10),
    "ProcessQueries.get_committed_brief": lambda store: store.processes.get_committed_brief("p"),
    "ProcessQueries.is_committed": lambda store: store.processes.is_committed("p"),
    "ProcessQueries.find_committed": lambda store: store.processes.find_committed("p"),
    "Saved.all": lambda store: store.saved_searches.all(),
    "Search.newest": lambda store: store.search.newest(1, "broken"),
    "Search.page": lambda store: store.search.page(parse("state:broken", datetime.now(UTC)), None, 1),
    "Schedules.all": lambda store: store.schedules.all(),
    "Schedules.all_with_damaged": lambda store: store.schedules.all_with_damaged(),
    "Schedules.among": lambda store: store.schedules.among(["nightly"]),
    "Schedules.get": lambda store: store.schedules.get("nightly"),
}
"""{query: the query, asked}: what is told to somebody, or concluded from for good."""
OF_OTHERS = {"DecisionQueries.catch_up", "Store.catch_up", "Store.clear_graph_deadlines", "Store.snapshot_pages"}
"""Say so as well: they wait, or read by what stands above, or as they are told to."""


def test_what_is_told_or_concluded_from_is_read_as_a_majority_has_it(listened: World) -> None:
    """What only the primary has a failover may take back: nobody would look again at what was put to rest by it."""
    for name, query in READ_AS_A_MAJORITY_HAS_IT.items():
        commands.sent = []
        query(listened.store)
        levels = {command["readConcern"]["level"] for kind, _, command in commands.sent if kind in READS}
        assert levels and levels <= {"majority", "linearizable"}, name


def test_of_every_query_that_says_so_it_is_tried() -> None:
    say_so = {
        name
        for name, (owner, method) in layer.steps().items()
        if "majority has" in (inspect.getdoc(getattr(owner, method)) or "")
    }
    assert say_so - OF_OTHERS - READ_AS_A_MAJORITY_HAS_IT.keys() == set(), "ask them above"


@pytest.mark.parametrize("told", [False, True])
def test_whole_processes_are_read_as_a_majority_has_them_for_people(listened: World, told: bool) -> None:
    """Repairs compare and set, and read what there is now."""
    process_id = listened.start(listened.app.process("order")(lambda: 1))
    commands.sent = []
    assert list(listened.store.snapshot_pages([process_id], committed=told, thorough=[process_id] if told else ()))
    found = [command for kind, _, command in commands.sent if kind == "find"]
    whole = [command["readConcern"]["level"] for command in found if "size" not in command.get("projection", {})]
    # For people they are looked through for damage as well, where rules do not look.
    assert whole == (["majority"] * 10 if told else ["local"] * 4)


@pytest.fixture
def majority_by_default(settings: Settings) -> Iterator[Settings]:
    """A cluster where all that names no read concern reads what a majority has."""
    with MongoClient[dict[str, Any]](settings.mongo_uri) as client:
        for level in ("majority", "local"):
            client.admin.command({"setDefaultRWConcern": 1, "defaultReadConcern": {"level": level}})
            if level == "majority":
                yield settings


def test_a_fan_out_whatever_the_cluster_says(majority_by_default: Settings) -> None:
    """Read-backs of what was just written see it."""
    settings = majority_by_default
    world = World(settings, Recovery(settings.model_copy(update={"message_timeout": 60.0})))
    layout.create(world.store.database)

    @world.app.actor()
    def square(number: int) -> int:
        return number * number

    @world.app.process()
    def squares() -> Any:
        return [square.schedule(number) for number in range(30)]

    process_id = world.start(squares)
    while world.pump():
        pass
    assert world.app.result(process_id, timeout=5) == [number * number for number in range(30)]
    assert current(world.store.database["decisions"]).count_documents({"losses": {"$exists": True}}) == 0


@pytest.mark.usefixtures("majority_by_default")
def test_what_is_not_followed_is_told(listened: World) -> None:
    said = overridden(listened.store.database.client)
    address = {"readPreference=secondaryPreferred", "readConcernLevel=majority", "w=0", "j=False", "wtimeout=1"}
    assert address <= set(said)
    assert any(one.startswith("the cluster's defaultReadConcern={level: majority") for one in said)
    check = concerns(listened.app.resources)
    assert check.level == "OK" and "readConcernLevel=majority" in check.found
    assert "not followed" in check.found
