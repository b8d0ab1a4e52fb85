"""Each check is OK where all is well, and says so where exactly its thing is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from packaging.requirements import Requirement

from recovery import Recovery
from recovery.errors import ServerRefused, ServerUnavailable, SettingsError, SparkUnavailable
from recovery.health import Level, doctor, examine, machine, model, mongodb_server, redis_server
from recovery.health.model import Cause, is_bad
from recovery.health.process_check import look
from recovery.queue import Broker
from recovery.queue.message import NUDGE
from recovery.records import (
    ActorPreferences,
    Decision,
    DecisionState,
    Graph,
    Process,
    ProcessState,
    SavedSearch,
    ScannerRun,
)
from recovery.records.schedule import Disabled, Plan, Schedule, SlotOutcome, SlotResult
from recovery.rules import Repair, Rule
from recovery.settings import Settings
from recovery.stack.server_process import free_port
from recovery.stack.servers import Valkey
from recovery.store import layout
from recovery.store.views import server_state
from recovery.store.views.overview import time_limit
from recovery.sweep import java
from tests.health.conftest import asked, worker
from tests.store.writing import put
from tests.world import World

DAY = timedelta(days=1)
OK, WARNING, UNKNOWN, PROBLEM = Level


def test_all_is_well(world: World) -> None:
    checks = list(examine(world.app.resources))
    assert [check.name for check in checks] == [name for name, _, _ in doctor.CHECKS]
    assert [check for check in checks if check.level is not OK or check.advice or not check.asked] == []
    assert all(check.found for check in checks)


def drop(collection: str, index: str) -> Callable[[World], object]:
    return lambda world: world.store.database[collection].drop_index(index)


def other_index(world: World) -> None:
    world.store.database["graphs"].drop_index("deadline")
    world.store.database["graphs"].create_index([("recoveryTime", 1)], name="deadline")


def change_validator(world: World, **options: Any) -> None:
    world.store.database.command("collMod", "processes", **options)


def queued(world: World, queue: str = "add", count: int = 1) -> None:
    world.redis.lpush(queue, *["message"] * count)


def process(world: World, **changes: Any) -> None:
    soon = world.store.now() + DAY
    put(world.store, Process(id="p", type="add", args="[]", recovery_time=soon).evolve(**changes))


def graph(world: World, **changes: Any) -> None:
    now = world.store.now()
    put(world.store, Graph(id="p", not_finished={"start": now}, touched_at=now).evolve(**changes))


def graph_of_a_running_process(world: World) -> None:
    process(world)
    graph(world)


def decision(world: World, overdue: float = 0.0, **changes: Any) -> None:
    made = Decision(id="p/start", actor="add", state=DecisionState.QUEUED).evolve(**changes)
    put(world.store, made.evolve(recovery_time=world.store.now() - timedelta(seconds=overdue)) if overdue else made)


def age_notes(world: World, *names: str) -> None:
    """Let scanners (all, if none is named) have run an hour ago for the last time."""
    selection = {"_id": {"$in": list(names)}} if names else {}
    hour_ago = world.store.now() - timedelta(hours=1)
    world.store.database["scanners"].update_many(selection, {"$set": {"ranAt": hour_ago, "nudgedAt": hour_ago}})


def no_worker(world: World) -> None:
    """None, and none for so long that it may just be restarting."""
    world.store.workers.remove(["w:1"])
    hour_ago = world.store.now() - timedelta(hours=1)
    world.store.database["queues"].update_many({}, {"$set": {"polledAt": hour_ago}})


def beat_gone_and_workers_too(world: World) -> None:
    age_notes(world)
    no_worker(world)


def nudges_wait(world: World) -> None:
    age_notes(world)
    queued(world, NUDGE, 7)


def lonely_queue(world: World) -> None:
    no_worker(world)
    waits(world)
    queued(world)


def stale_messages(world: World) -> None:
    """As an abort leaves them."""
    no_worker(world)
    queued(world)


def waits(world: World, actor: str = "add", tasks: int = 1, seconds: float = 300) -> None:
    now = world.store.now()
    put(
        world.store,
        *(
            Decision(id=f"p/{actor}{n}", actor=actor, state=DecisionState.QUEUED).evolve(
                queued_at=now - timedelta(seconds=seconds), recovery_time=now + DAY
            )
            for n in range(tasks)
        ),
    )


def serve_another(world: World) -> None:
    no_worker(world)
    world.store.actors.save([ActorPreferences(id="other")])
    world.store.workers.beat(worker(queues=("other",)), 60)


def waits_for_nobody(world: World) -> None:
    serve_another(world)
    waits(world, tasks=22)


def waits_for_a_new_one(world: World) -> None:
    waits(world, "price_list", tasks=2)


def only_sweeps(world: World) -> None:
    """A worker of the queue `spark`, which is no actor's."""
    no_worker(world)
    world.store.workers.beat(worker("sweep", queues=()), 60)


def block(world: World) -> None:
    world.store.database["actors"].update_one({"_id": "add"}, {"$set": {"blockedAt": world.store.now()}})


def waits_for_an_operator(world: World) -> None:
    block(world)
    waits(world, tasks=3)


def lives_for_ever(world: World) -> None:
    world.store.workers.beat(worker("forged"), 1_000_000_000)


def silent(world: World) -> None:
    world.store.workers.beat(worker("hung"), -5)


MISSHAPEN: dict[str, tuple[Callable[[World], object], str]] = {
    "index gone": (drop("decisions", "deadline"), "index decisions.deadline"),
    "index of gaps gone": (drop("processes", "deadlineMissing"), "processes.deadlineMissing"),
    "another index": (other_index, "not as it should be: graphs.deadline"),
    "validator gone": (lambda w: change_validator(w, validator={}), "validator of processes"),
    "validator off": (lambda w: change_validator(w, validationLevel="off"), "validator of processes"),
    "validator only warns": (lambda w: change_validator(w, validationAction="warn"), "validator of processes"),
    "collection gone": (lambda w: w.store.database.drop_collection("tasks"), "collection tasks"),
}  # fmt: skip


def schedule(world: World, *, refused: bool = False) -> None:
    now = world.store.now()
    next_slot = now + timedelta(days=1)
    made = Schedule(id="pull", type="pull", code=Plan(schedule="1d"), next_slot=next_slot, recovery_time=next_slot)
    if refused:
        result = SlotResult(slot=now, outcome=SlotOutcome.REFUSED, reason="DISABLED: an audit")
        made = made.evolve(recent=(result,))
    else:
        made = made.evolve(disabled=Disabled(process="p", code=40000, reason="failed for good", at=now))
    assert world.store.schedules.insert(made)


BROKEN: dict[str, tuple[str, Callable[[World], object], Level, str]] = {
    "decision without deadline": ("deadlines", decision, PROBLEM, "1 decisions"),
    "process without deadline": ("deadlines", lambda w: process(w, recovery_time=None), PROBLEM, "1 processes"),
    "graph without deadline": ("deadlines", graph_of_a_running_process, PROBLEM, "1 graphs"),
    "no worker": ("workers", no_worker, PROBLEM, "0 alive"),
    "a worker for sweeps alone": ("workers", only_sweeps, PROBLEM, "1 alive: sweep; none of them serves an actor"),
    "worker for ever": ("workers", lives_for_ever, WARNING, "1 alive: w; silent: forged"),
    "silent worker": ("workers", silent, WARNING, "1 alive: w; silent: hung"),
    "actor without a worker": ("actors", serve_another, WARNING, "no worker serves add, and no task waits"),
    "actors without any worker": ("actors", no_worker, WARNING, "no worker serves add, and no task waits"),
    "waits for nobody": ("actors", waits_for_nobody, PROBLEM, "serves add (22 waiting, the oldest for 5m"),
    "waits for a new actor": ("actors", waits_for_a_new_one, PROBLEM, "no worker serves price_list (2 waiting"),
    "actor blocked": ("actors", block, WARNING, ", 0 waiting)"),
    "waits for an operator": ("actors", waits_for_an_operator, WARNING, ", 3 waiting)"),
    "queue without consumer": ("queues", lonely_queue, PROBLEM, "no worker consumes add (1, polled 60m ago"),
    "messages left behind": ("queues", stale_messages, WARNING, "no worker consumes add (1, polled 60m ago"),
    "beat silent": ("beat", age_notes, PROBLEM, "last nudge taken 60m"),
    "beat and workers silent": ("beat", beat_gone_and_workers_too, WARNING, "no worker is alive to take a nudge"),
    "workers gone just now": ("beat", no_worker, WARNING, "no worker is alive to take a nudge"),
    "no scanner without a worker": ("scanners", no_worker, WARNING, "since no worker is alive: the last ran"),
    "no scanner without a beat": ("scanners", age_notes, WARNING, "none runs: the last ran 60m ago"),
    "nudges not answered": ("beat", nudges_wait, WARNING, "7 wait"),
    "nudges wait": ("nudges", nudges_wait, WARNING, "7 waiting in recovery.nudge"),
    "a schedule disabled": ("schedules", schedule, WARNING, "disabled by their failures: pull: failed for good"),
    "a slot refused": (
        "schedules", lambda w: schedule(w, refused=True), WARNING, "refused their last slot: pull: DISABLED: an audit"
    ),
    "a signed age": (
        "selections",
        lambda w: w.store.saved_searches.insert(SavedSearch(id="old", text="ended:<90d")),
        WARNING,
        "@old: ended:<90d",
    ),
    "a marker": (
        "markers",
        lambda w: w.store.database["markers"].insert_one({"_id": "add", "type": "add", "writtenAt": w.store.now()}),
        WARNING,
        "not started: 1 marker of add (1)",
    ),
    "one scanner fails": (
        "scanners", lambda w: age_notes(w, "graphs"), PROBLEM, "do not run, though others do: graphs"
    ),
    "scan cut off": (
        "scanners",
        lambda w: w.store.scanners.note(ScannerRun(id="graphs", error="Oops"), by_beat=True),
        WARNING,
        "graphs (Oops)",
    ),
    "scanners late": ("scanners", lambda w: decision(w, overdue=20), WARNING, "overdue for up to 2"),
    "scanners very late": ("scanners", lambda w: decision(w, overdue=3600), PROBLEM, "overdue for up to 60m"),
}  # fmt: skip
CAUSES = {
    Cause.DEADLINES_MISSING: ["decision without deadline", "process without deadline", "graph without deadline"],
    Cause.NO_WORKERS: ["no worker", "a worker for sweeps alone", "beat and workers silent", "workers gone just now"],
    Cause.WORKERS_SILENT: ["worker for ever", "silent worker"],
    Cause.ACTORS_UNSERVED: [
        "actor without a worker",
        "actors without any worker",
        "waits for nobody",
        "waits for a new actor",
    ],
    Cause.ACTORS_BLOCKED: ["actor blocked", "waits for an operator"],
    Cause.QUEUES_UNSERVED: ["queue without consumer"],
    Cause.MESSAGES_LEFT: ["messages left behind"],
    Cause.NO_BEAT: ["beat silent"],
    Cause.NO_SCANS: ["no scanner without a worker", "no scanner without a beat"],
    Cause.NUDGES_NOT_TAKEN: ["nudges not answered", "nudges wait"],
    Cause.SCHEDULES_DISABLED: ["a schedule disabled"],
    Cause.SCHEDULES_REFUSED: ["a slot refused"],
    Cause.SELECTIONS_AMBIGUOUS: ["a signed age"],
    Cause.STARTS_REFUSED: ["a marker"],
    Cause.SCANNERS_FAIL: ["one scanner fails", "scan cut off"],
    Cause.RECORDS_OVERDUE: ["scanners late", "scanners very late"],
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_is_said_with_what_to_do(world: World, case: str) -> None:
    name, break_it, level, said = BROKEN[case]
    break_it(world)
    check = asked(world, name)
    assert (check.level, check.asked) == (level, True), check
    assert case in CAUSES[check.cause], check
    assert said in check.found
    assert check.advice


def test_a_fresh_database_needs_init_and_workers(settings: Settings) -> None:
    checks = {check.name: check for check in examine(Recovery(settings).resources)}
    assert {name for name, check in checks.items() if check.level is PROBLEM} == {"collections", "workers"}
    assert checks["collections"].cause is Cause.COLLECTIONS_MISSING
    assert "collection decisions" in checks["collections"].found


@pytest.mark.parametrize(
    "at_rest",
    [
        {"not_finished": {}},
        {"failed": {"start": True}},
        {"recovery_time": "soon"},
    ],
)
def test_graphs_that_need_no_deadline_or_have_one(world: World, at_rest: dict[str, Any]) -> None:
    process(world)
    graph(world, **{name: world.store.now() + DAY if value == "soon" else value for name, value in at_rest.items()})
    assert asked(world, "deadlines").level is OK


def test_a_graph_of_a_process_without_deadline_is_counted_too(world: World) -> None:
    process(world, recovery_time=None)
    graph(world)
    found = asked(world, "deadlines").found
    assert "1 graphs" in found and "1 processes" in found


def test_what_is_at_rest_is_not_read_for_deadlines(own_world: World) -> None:
    documents = [{"_id": f"r{n}", "type": "a", "args": "[]", "state": "finished"} for n in range(500)]
    own_world.store.database["processes"].insert_many(documents)
    own_world.store.database["graphs"].insert_many([{"_id": f"r{n}", "notFinished": {}} for n in range(500)])
    graph_of_a_running_process(own_world)
    own_world.store.database.command("profile", 2)
    asked(own_world, "deadlines")
    own_world.store.database.command("profile", 0)
    entries = list(own_world.store.database["system.profile"].find({"op": {"$in": ["query", "command"]}}))
    assert entries
    assert max(entry.get("keysExamined", 0) + entry.get("docsExamined", 0) for entry in entries) < 20


def test_tasks_that_wait_for_a_newer_worker(world: World) -> None:
    resources = world.app.resources
    newer = Recovery(resources.settings, version="2.0")

    @newer.process("add")
    def add(one: int, other: int, third: int) -> int:
        return one + other + third

    ids = [newer.start("add", 1, 2, third=3) for _ in range(2)]
    newer.registrar.flush()
    assert world.pump() == 2
    world.store.catch_up(10)
    check = asked(world, "calls")
    assert (check.level, check.cause) == (WARNING, Cause.WAITS_FOR_NEWER_WORKER)
    told = f"version {world.app.version} got an unexpected keyword argument 'third'"
    assert check.found == f"2 tasks wait for a newer worker: add (2; {told})"
    assert check.advice.startswith("start workers with the version that accepts these calls: first the workers that")
    assert check.advice.endswith("have refused it for 10m (RECOVERY_VERSION_GRACE)")
    (finding,) = look(resources, ids[0]).findings
    assert (finding.rule, finding.repair) == (Rule.NO_ACTORS, Repair.WAIT)
    assert f", waits for a newer worker: {told}" in finding.evidence
    # Queued again, and then begun by a version that accepts it.
    decisions = world.store.database["decisions"]
    decisions.update_many({}, [{"$set": {"eta": "$$NOW", "recoveryTime": "$$NOW"}}])
    world.scan()
    world.store.catch_up(10)
    assert asked(world, "calls").cause is Cause.WAITS_FOR_NEWER_WORKER
    assert World(resources.settings, newer).pump() == 2
    world.store.catch_up(10)
    assert asked(world, "calls").level is OK


def test_without_its_index_tasks_that_wait_for_a_newer_worker_are_not_looked_for(own_world: World) -> None:
    own_world.store.database["decisions"].drop_index("refused")
    check = asked(own_world, "calls")
    assert (check.level, check.cause, check.asked) == (WARNING, Cause.INDEX_MISSING, False)


@pytest.mark.parametrize(("index", "name"), [("deadlineMissing", "deadlines"), ("unsuccessful", "processes")])
def test_without_its_index_a_count_is_not_made(own_world: World, index: str, name: str) -> None:
    own_world.store.database["processes"].drop_index(index)
    check = asked(own_world, name)
    assert (check.level, check.cause, check.asked) == (WARNING, Cause.INDEX_MISSING, False)
    assert f"not asked without index processes.{index}" in check.found


def test_what_stands_in_the_place_of_a_queue(world: World) -> None:
    waits(world)
    world.redis.set("strangers", "their own")
    assert (asked(world, "keys").level, asked(world, "keys").found) == (OK, "no other key has the name of a queue")
    world.redis.hset("add.not-a-queue.0123456789abcdef", "theirs", "kept")
    check = asked(world, "keys")
    assert (check.level, check.found) == (WARNING, "set aside by workers: add.not-a-queue.0123456789abcdef")
    world.redis.set("add", "theirs")
    world.redis.xadd(NUDGE, {"theirs": "kept"})
    check = asked(world, "keys")
    assert (check.level, check.cause) == (PROBLEM, Cause.KEYS_IN_THE_WAY) and "Then rename or delete it" in check.advice
    assert check.found.startswith(f"not a queue: add is a string, {NUDGE} is a stream; set aside by")


def test_broken_processes_are_told(world: World) -> None:
    process(world, state=ProcessState.BROKEN, recovery_time=None)
    check = asked(world, "processes")
    assert (check.level, check.cause) == (WARNING, Cause.BROKEN_NOT_LISTED)
    assert check.advice == "run `recovery sweep --repair`, which lists them again"
    assert check.found == "0 running, 1 broken, 0 aborted; 1 of the broken ones is not listed as interrupted"
    world.store.database["interruptions"].insert_one({"_id": "p/start"}, bypass_document_validation=True)
    check = asked(world, "processes")
    assert (check.level, check.cause) == (WARNING, Cause.PROCESSES_BROKEN)
    assert check.found == "0 running, 1 broken, 0 aborted"
    assert "`recovery broken list` shows why" in check.advice
    assert is_bad([check]), "the command ends with 1"
    world.store.database["processes"].delete_many({})
    check = asked(world, "processes")
    assert (check.level, check.advice, is_bad([check])) == (OK, "", False)


def test_a_server_that_is_away_hides_only_what_it_alone_tells(world: World) -> None:
    away = world.settings.model_copy(update={"broker_url": f"redis://127.0.0.1:{free_port()}/0"})
    checks = {check.name: check for check in examine(Recovery(away).resources)}
    assert {name for name, check in checks.items() if not check.asked} == {
        "redis", "redis memory", "heartbeats", "queues", "keys", "beat", "nudges"
    }  # fmt: skip
    assert "does not answer" in checks["redis"].found
    assert "since redis did not answer" in checks["queues"].found
    assert (checks["redis"].level, checks["redis"].cause) == (PROBLEM, Cause.REDIS_UNREACHABLE)
    unknown = {check.name for check in checks.values() if (check.level, check.cause) == (UNKNOWN, Cause.NOT_ASKED)}
    assert unknown == {"redis memory", "heartbeats", "queues", "keys", "beat", "nudges"}
    assert checks["workers"].level is OK


def test_a_check_that_fails_stands_in_no_others_way(world: World) -> None:
    def fails(_: object) -> Any:
        raise KeyError("odd")

    first, second = examine(world.app.resources, [("odd", fails, ()), ("sweeps", machine.sweeps, ("mongodb",))])
    assert (first.level, first.asked) == (PROBLEM, False)
    assert "KeyError: 'odd'" in first.found
    assert second.asked


@pytest.mark.parametrize(
    ("options", "name", "cause", "said"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, "redis memory", Cause.REDIS_DROPS_MESSAGES, "drops messages"),
        ({"maxmemory-policy": "volatile-lru"}, "redis memory", Cause.REDIS_POLICY, "others' keys"),
        ({"maxmemory": "1"}, "redis memory", Cause.REDIS_FULL, "takes no messages"),
        ({"maxmemory": "1gb"}, "redis memory", Cause.HEALTHY, "of 1,024 MB"),
        ({"appendonly": "no"}, "redis", Cause.HEALTHY, "persistence: none"),
        ({"appendonly": "no", "save": "60 1"}, "redis", Cause.HEALTHY, "persistence: saves"),
        ({}, "redis", Cause.HEALTHY, "persistence: append-only file"),
    ],
)
def test_redis(world: World, own_valkey: Valkey, options: dict[str, str], name: str, cause: Cause, said: str) -> None:
    usual = {"maxmemory-policy": "noeviction", "maxmemory": "0", "appendonly": "yes", "save": ""}
    with redis.Redis.from_url(own_valkey.url) as server:
        for option, value in (usual | options).items():
            server.config_set(option, value)
    other = World(world.settings.model_copy(update={"broker_url": own_valkey.url}))
    check = asked(other, name)
    levels = {Cause.HEALTHY: OK, Cause.REDIS_POLICY: WARNING}
    assert (check.cause, check.level) == (cause, levels.get(cause, PROBLEM)), check
    assert said in check.found
    assert bool(check.advice) == (cause is not Cause.HEALTHY)


def test_a_replica_of_redis_takes_no_messages(world: World, own_valkey: Valkey) -> None:
    with redis.Redis.from_url(own_valkey.url) as server:
        server.replicaof("127.0.0.1", str(free_port()))
        try:
            other = World(world.settings.model_copy(update={"broker_url": own_valkey.url}))
            check = asked(other, "redis")
            assert check.cause is Cause.REDIS_IS_REPLICA and "it is a replica" in check.found
        finally:
            server.replicaof("NO", "ONE")


def test_a_redis_that_can_not_write_to_its_disk(world: World) -> None:
    now = world.app.resources.broker.condition()
    check = redis_server.judge_redis(replace(now, writes_well=False))
    assert (check.level, check.cause) == (PROBLEM, Cause.REDIS_CAN_NOT_SAVE) and "takes no messages" in check.advice
    assert "persistence: not told" in redis_server.judge_redis(replace(now, appends=False, saves=None)).found


@pytest.mark.parametrize(
    ("error", "mongodb", "redis_"),
    [
        (ServerRefused("it lets nobody in"), Cause.MONGODB_REFUSES, Cause.REDIS_REFUSES),
        (ServerUnavailable("it does not answer"), Cause.MONGODB_UNREACHABLE, Cause.REDIS_UNREACHABLE),
        (SettingsError("no replica set"), Cause.MONGODB_UNFIT, Cause.REDIS_REFUSES),
    ],
)
def test_a_server_that_is_of_no_use(
    world: World, monkeypatch: pytest.MonkeyPatch, error: Exception, mongodb: Cause, redis_: Cause
) -> None:
    def refuses(*_: object, **__: object) -> Any:
        raise error

    monkeypatch.setattr(mongodb_server, "check_server", refuses)
    monkeypatch.setattr(Broker, "check", refuses)
    for check, cause in ((mongodb_server.mongodb, mongodb), (redis_server.redis, redis_)):
        told = check(world.app.resources)
        assert (told.level, told.cause, told.asked) == (PROBLEM, cause, False) and str(error) in told.found


def test_no_password_is_told(world: World) -> None:
    port = free_port()
    changes = {"mongo_uri": f"mongodb://me:secret@127.0.0.1:{port}", "broker_url": f"redis://:secret@127.0.0.1:{port}"}
    away = Recovery(world.settings.model_copy(update=changes)).resources
    with time_limit(0.3):
        said = [mongodb_server.mongodb(away).found, redis_server.redis(away).found]
    assert all("://127.0.0.1" in found and "secret" not in found for found in said)


def seconds(number: float, uncertain: float = 0.0) -> tuple[timedelta, timedelta]:
    return timedelta(seconds=number), timedelta(seconds=uncertain)


@pytest.mark.parametrize(
    ("mongo", "redis_", "level"),
    [
        (seconds(0.9), seconds(-0.9), OK),
        (seconds(1.1), seconds(0), WARNING),
        (seconds(0), seconds(-59), WARNING),
        (seconds(61), seconds(0), PROBLEM),
        (seconds(0), seconds(-61), PROBLEM),
        (seconds(3, uncertain=2.5), seconds(0), OK),
    ],
)
def test_clocks(mongo: Any, redis_: Any, level: Level) -> None:
    check = machine.judge_clocks({"MongoDB": mongo, "Redis": redis_})
    assert check.level is level
    assert bool(check.advice) == (level is not OK)


def test_a_clock_that_is_wrong(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = server_state.MongoServer.clock
    behind = timedelta(minutes=5)
    monkeypatch.setattr(server_state.MongoServer, "clock", lambda server: (real(server)[0] - behind, real(server)[1]))
    check = asked(world, "clocks")
    assert check.level is PROBLEM
    assert "behind this machine" in check.found


def test_packages_of_another_version() -> None:
    demanded = ["celery>=99", "redis>=5", "no-such-package", "pyspark>=99; extra == 'spark'"]
    check = machine.judge_packages(map(Requirement, demanded))
    assert check.level is PROBLEM
    assert ">=99 is needed; no-such-package is missing" in check.found
    assert "redis" not in check.found and "pyspark" not in check.found


def test_no_java(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise SparkUnavailable("no Java here")

    monkeypatch.setattr(java, "check", missing)
    check = asked(world, "sweeps")
    assert (check.level, check.asked) == (WARNING, True)
    assert "no Java here" in check.found


@pytest.mark.parametrize("case", MISSHAPEN)
def test_what_is_missing_is_brought_back_as_advised(own_world: World, case: str) -> None:
    break_it, said = MISSHAPEN[case]
    break_it(own_world)
    check = asked(own_world, "collections")
    cause = Cause.COLLECTIONS_DIFFERENT if case == "another index" else Cause.COLLECTIONS_MISSING
    assert (check.level, check.cause) == (PROBLEM, cause)
    assert said in check.found
    if case == "another index":
        assert "db.graphs.dropIndex('deadline')" in check.advice
        own_world.store.database["graphs"].drop_index("deadline")
    assert "recovery init" in check.advice
    layout.create(own_world.store.database)  # what `recovery init` does
    assert asked(own_world, "collections").level is OK


def test_what_to_do_about_what_waits_for_nobody(world: World) -> None:
    waits_for_nobody(world)
    old_name = '`@app.actor("add")`, or abort what waits for it, `recovery broken abort --waiting-for add`'
    advice = asked(world, "actors").advice
    assert advice.startswith("start a worker that serves add") and old_name in advice
    assert "forget" not in advice and "collection" not in advice
    waits_for_a_new_one(world)
    assert asked(world, "actors").advice.startswith("restart the workers with the code that has it")


def test_with_all_workers_dead_nothing_is_advised_but_to_start_some(world: World) -> None:
    waits(world)
    no_worker(world)
    checks = {check.name: check for check in examine(world.app.resources)}
    assert "recovery worker" in checks["workers"].advice
    assert {checks[name].advice for name in ("actors", "scanners")} == {"start workers, see `workers`"}


@pytest.mark.parametrize(
    ("collection", "field", "check", "level", "found"),
    [
        ("workers", "polls.0.polledAt", "polls", PROBLEM, "does not answer their polls: w (never)"),
        ("scanners", "nudgedAt", "beat", PROBLEM, "no nudge was ever taken"),
        ("scanners", "ranAt", "scanners", WARNING, "none runs: none ever ran"),
    ],
)
def test_what_is_still_to_come_is_no_sign_of_life(
    world: World, collection: str, field: str, check: str, level: Level, found: str
) -> None:
    """Another program wrote it, or a clock that was far ahead."""
    now = world.store.now()
    polls = [{"_id": "add", "polledAt": now}]
    started = {"startedAt": now - timedelta(minutes=1), "queues": ["add"], "polls": polls}
    world.store.database["workers"].update_one({}, {"$set": started})
    world.store.database[collection].update_many({}, {"$set": {field: datetime(9999, 12, 31, tzinfo=UTC)}})
    told = asked(world, check)
    assert (told.level, found in told.found) == (level, True), told


@pytest.mark.parametrize(
    ("polled", "level"), [pytest.param(3, OK, id="just restarting"), pytest.param(60, PROBLEM, id="gone")]
)
def test_a_worker_that_may_be_restarting(world: World, polled: float, level: Level) -> None:
    waits(world)
    serve_another(world)
    world.store.database["queues"].update_one(
        {"_id": "add"}, {"$set": {"polledAt": world.store.now() - timedelta(seconds=polled)}}
    )
    assert asked(world, "actors").level is level


def test_a_long_queue_of_an_actor_that_is_served_is_no_problem(world: World) -> None:
    waits(world, tasks=500, seconds=3600)
    queued(world, count=500)
    assert (asked(world, "actors").level, asked(world, "queues").level) == (OK, OK)


@pytest.mark.parametrize(
    ("version", "takes_zlib", "level"),
    [
        *(("6.0.5", True, PROBLEM), ("6.0.5", False, OK), ("6.0.27", True, OK)),
        *(("8.0.16", True, PROBLEM), ("8.0.17", True, OK), ("8.2.3", True, OK), ("9.0.0-rc1", True, OK)),
    ],
)
def test_a_mongodb_that_shows_its_memory(version: str, takes_zlib: bool, level: Level) -> None:
    check = mongodb_server.judge_mongodb(version, "recovery", takes_zlib)
    assert (check.level, bool(check.advice)) == (level, level is PROBLEM)
    assert check.found.startswith(f"{version} answers, database recovery")


def test_a_file_that_is_for_everybody_to_read(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, key = tmp_path / "recovery.toml", tmp_path / "own.key"
    config.write_text("scan_interval = 1")
    config.chmod(0o644)
    key.touch(0o600)
    resources = world.app.resources
    assert "no file of this machine" in machine.secrets(resources).found
    monkeypatch.setenv("RECOVERY_CONFIG", str(config))
    assert "no file of this machine" in machine.secrets(resources).found, "there is no secret in it"
    config.write_text('mongo_uri = "mongodb://u:secret@h/"')
    assert machine.secrets(resources).found == f"everybody on this machine may read {config}"
    config.chmod(0o640)
    own = resources.settings.model_copy(update={"broker_url": f"rediss://h/0?ssl_certfile=/own.pem&ssl_keyfile={key}"})
    with_key = replace(resources, settings=own)
    assert machine.secrets(with_key) == model.ok("secrets", f"not for everybody to read: {key}, {config}")
    key.chmod(0o604)
    found = machine.secrets(with_key)
    assert (found.level, found.cause) == (WARNING, Cause.SECRETS_READABLE)
    assert found.found == f"everybody on this machine may read {key}"
    assert "chmod 600" in found.advice and "secret@" not in str(found)
