"""Each role on a MongoDB that asks who comes: it does all that it is for, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.database import Database
from pymongo.errors import OperationFailure

from recovery import Recovery
from recovery.cli.main import execute
from recovery.drill.canary_actor import CanaryKind
from recovery.drill.flock import Flock
from recovery.drill.readiness import muster
from recovery.engine import Keys
from recovery.engine.end.fencing import remove
from recovery.engine.operators.markers import clear_marker
from recovery.engine.operators.overrides import ActorOverrides, ProcessTypeOverrides
from recovery.engine.operators.redo import redo_process
from recovery.engine.operators.restart import restart_process
from recovery.engine.operators.saved_searches import read_search, remove_search, save_search
from recovery.engine.operators.schedules import Schedules
from recovery.errors import (
    CustomIdTaken,
    DamagedRecord,
    ServerRefused,
    ServerUnavailable,
    StartRefused,
    StoreDenied,
    StoreUnavailable,
)
from recovery.health import Level, examine, look, repair
from recovery.health.model import Cause
from recovery.health.mongodb_server import rights
from recovery.operations import OperationRequest
from recovery.operations.commands import schedule_operation
from recovery.operations.saved import forget_operation, save_operation
from recovery.records import Process, Worker, from_document, shapes_of
from recovery.scan import ScheduleScanner
from recovery.settings import Settings
from recovery.stack import Stack
from recovery.stack.servers import Mongod
from recovery.store import definitions, layout, roles, schema
from recovery.store.driver_errors import is_denied
from recovery.store.lifecycle.decisions import Decisions
from tests.cli import shop
from tests.waiting import wait_until
from tests.world import World

pytestmark = pytest.mark.thorough

DATABASE, PASSWORD = "recovery", "secret"
ADMIN = "admin"


class Guarded(Mongod):
    """A mongod that lets nobody in without a password, once `key` is there."""

    key: Path | None = None

    def _command(self) -> Sequence[str | Path]:
        return [*super()._command(), *(("--auth", "--keyFile", self.key) if self.key else ())]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """With an administrator, and a user named by each role that has it, and nothing else."""
    folder = tmp_path_factory.mktemp("guarded")
    mongod = Guarded(folder / "data", folder / "log")
    mongod.start()
    with MongoClient[Any](mongod.uri) as client:
        client.admin.command("createUser", ADMIN, pwd=PASSWORD, roles=["root"])
        roles.create(client[DATABASE])
        for role in roles.ROLES:
            client.admin.command("createUser", role, pwd=PASSWORD, roles=[{"role": role, "db": DATABASE}])
    mongod.stop()
    mongod.key = folder / "key"
    mongod.key.write_text("a key of letters")
    mongod.key.chmod(0o400)
    mongod.start()
    yield mongod
    mongod.stop()


def uri(mongod: Mongod, user: str) -> str:
    return mongod.uri.replace("mongodb://", f"mongodb://{user}:{PASSWORD}@") + "&authSource=admin"


@pytest.fixture(scope="module")
def admin(guarded: Guarded) -> Iterator[Database[Any]]:
    """The database as its administrator sees it."""
    with MongoClient[Any](uri(guarded, ADMIN)) as client:
        yield client[DATABASE]


As = Callable[[str], World]


@pytest.fixture
def come_as(guarded: Guarded, admin: Database[Any], settings: Settings) -> As:
    """An application of the same actors for whoever comes. The database is empty before."""
    admin.client.drop_database(DATABASE)

    def come(user: str) -> World:
        world = World(settings.model_copy(update={"mongo_uri": uri(guarded, user), "database": DATABASE}))
        declare(world.app)
        return world

    return come


def declare(app: Recovery) -> None:
    @app.actor()
    def part(number: int) -> int:
        if number < 0:
            raise ValueError("below zero")
        return number

    @app.actor()
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    @app.process(markers=True, key=lambda *numbers: len(numbers))
    def order(*numbers: int) -> Any:
        return add.schedule([part.schedule(number) for number in numbers])


def test_an_operator_runs_a_drill_and_nobody_below(come_as: As) -> None:
    """As far as it goes without workers: it looks who is there, starts canaries and removes them."""
    operator = come_as(roles.OPERATOR)
    layout.create(operator.store.database)
    with pytest.raises(ServerUnavailable, match="no worker is alive"):
        muster(operator.app.resources, kill=False)
    flock = Flock(operator.app.resources, "d1")
    flock.start(CanaryKind.ROUND)
    flock.look()
    assert (flock.remove_old(), flock.remove()) == (0, 0)
    assert set(operator.counts().values()) == {0}
    with pytest.raises(StoreDenied):
        muster(come_as(roles.CLIENT).app.resources, kill=False)


def test_a_client_registers_again_and_reads_no_task(come_as: As, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer was lost, so whether the task was there is not known, and it may not look."""
    operator, client, worker = (come_as(role) for role in (roles.OPERATOR, roles.CLIENT, roles.WORKER))
    layout.create(operator.store.database)
    worker.tell()
    real, answers = Decisions.insert_queued, iter([StoreUnavailable("the answer is lost")])

    def insert_queued(*args: Any) -> Any:
        done = real(*args)
        if (lost := next(answers, None)) is not None:
            raise lost
        return done

    monkeypatch.setattr(Decisions, "insert_queued", insert_queued)
    process_id = client.app.start("order", 1)
    wait_until(lambda: client.redis.llen("order"), 10, "its message")
    assert worker.bring_to_end(process_id).state == "finished"


def refused(step: Callable[[], object]) -> bool:
    try:
        step()
    except OperationFailure as error:
        return is_denied(error)
    return False


def test_all_do_what_they_are_for(come_as: As) -> None:  # noqa: PLR0915 - lists all that each role may do
    operator, client, worker, reader = (
        come_as(role) for role in (roles.OPERATOR, roles.CLIENT, roles.WORKER, roles.READER)
    )
    layout.create(operator.store.database)
    layout.create(worker.store.database)  # all is there: no right to create anything is needed
    worker.tell()
    fine, bad = client.start("order", 1, 2, 3), client.start("order", 1, -2)
    assert set(operator.counts().values()) == {2}, "both starts are registered as a whole"
    assert worker.bring_to_end(fine).state == "finished"
    assert worker.bring_to_end(bad).state == "broken"
    assert client.app.result(fine, timeout=0) == 6
    with pytest.raises(StartRefused):
        client.start("order", 3, 4)
    assert client.start("order", 3, 4, 5)
    assert [marker.id for marker in reader.store.markers.all()] == ["order/2"]
    clear_marker(operator.app.resources, "order/2", "a test")
    types = ProcessTypeOverrides(operator.app.resources)
    assert types.disable("order", "a test") and types.enable("order")
    schedules = Schedules(operator.app.resources)
    schedules.add("hourly", "order", {"schedule": "1h", "arguments": "[7, 8, 9, 10]"}, "a test")
    scanner = ScheduleScanner(worker.app.resources, worker.app.outbox, Keys(worker.app.actors))
    assert scanner.run_once().looked_at == 1, "it tells the key"
    assert worker.bring_to_end(schedules.trigger("hourly", "a test").process or "").result == "34"
    due = schedules.get("hourly").evolve(next_slot=operator.store.now(), recovery_time=operator.store.now())
    assert operator.store.schedules.save(due)
    assert scanner.run_once().looked_at == 1
    assert reader.store.schedules.all()["hourly"].recent[-1].outcome == "started"
    worker.store.schedules.postpone("hourly", 1, 7200)
    schedules.remove("hourly")
    asked = OperationRequest("collect", "ended:before(30d)")
    nightly = schedule_operation(operator.app.resources, "nightly", asked, {"schedule": "1h"}, "a test")
    assert operator.store.schedules.save(
        nightly.evolve(next_slot=operator.store.now(), recovery_time=operator.store.now())
    )
    assert scanner.run_once().looked_at == 1
    (ordered,) = reader.store.operations.newest(1)
    assert ordered.who == "schedule nightly"
    schedules.remove("nightly")
    save_search(operator.app.resources, "bad", "state:broken")
    save_search(operator.app.resources, "bad", "state:aborted", replace=True)
    assert reader.store.search.page(read_search(reader.app.resources, "not @bad"), None, 10)
    with pytest.raises(StoreDenied, match="recoveryOperator"):
        save_search(reader.app.resources, "mine", "state:broken")
    asked = OperationRequest("abort", "@bad")
    save_operation(operator.app.resources, "mine", asked)
    save_operation(operator.app.resources, "mine", OperationRequest("abort", "state:broken"), replace=True)
    with pytest.raises(StoreDenied, match="recoveryOperator"):
        save_operation(reader.app.resources, "other", asked)
    assert [*reader.store.saved_operations.all()] == ["mine"]
    forget_operation(operator.app.resources, "mine")
    remove_search(operator.app.resources, "bad")
    # What a worker does beside its tasks.
    worker.store.workers.beat(Worker(id="w", name="w", host="here", pid=1, pid_started=1), 60)
    worker.store.workers.remove(["w"])
    worker.store.task_deadlines.postpone_damaged(f"{bad}/start")
    worker.store.processes.postpone(bad, 1)
    worker.store.graphs.postpone(bad, 1)

    overrides = ActorOverrides(operator.app.resources)
    assert overrides.block("part")
    overrides.set("part", {"task_timeout": 60})
    assert restart_process(operator.app.resources, bad).tasks == 1
    operator.store.database["graphs"].update_one({"_id": bad}, {"$set": {"touchedAt": operator.store.now()}})
    repair(operator.app.resources, look(operator.app.resources, bad))
    operator.app.abort(bad, "enough")
    assert overrides.unblock("part")
    redo_process(operator.app.resources, fine, "a test")
    assert worker.bring_to_end(fine).epoch == 1
    line = next(worker.store.exports.wholes([fine])).line()
    wait_until(lambda: not worker.store.removals.live([fine]) or worker.scan(), 10, "all to be at rest")
    assert remove(worker.app.resources, [worker.process(fine)]) == {fine}
    assert operator.store.imports.save([operator.store.exports.parsed(line)]) == {fine}
    operator.store.queues.remove("part")
    kept = operator.store.actors.forget("part")
    assert kept is not None
    operator.store.actors.restore(kept)

    assert look(reader.app.resources, fine).snapshot.tasks
    assert reader.store.disk.use(100).types["order"].disk
    checks = {check.name: check for check in examine(reader.app.resources)}
    levels = {name: check.level for name, check in checks.items()}
    assert {levels[name] for name in ("collections", "rights", "deadlines", "processes")} <= {Level.OK, Level.WARNING}
    assert (levels["writes"], checks["writes"].cause) == (Level.WARNING, Cause.WRITES_NOT_TRIED)


VALID: dict[str, Any] = {
    "_id": "x",
    "state": "finished",
    "actor": "a",
    "restarts": 0,
    "notFinished": {},
    "recoveryTime": datetime.now(UTC),
}
"""In any collection, but for what is said of some."""
OF_SOME: dict[str, dict[str, Any]] = {
    schema.OPERATIONS: {"_id": 1},
    schema.OPERATION_RANGES: {"state": "done"},
    schema.OPERATION_RESULTS: {"state": "done"},
}


def valid(name: str) -> dict[str, Any]:
    return VALID | OF_SOME.get(name, {})


def test_a_client_replaces_what_has_finished_and_asks_an_operator_about_what_is_broken(come_as: As) -> None:
    operator, client, worker = come_as(roles.OPERATOR), come_as(roles.CLIENT), come_as(roles.WORKER)
    layout.create(operator.store.database)
    worker.tell()
    fine = client.start("order", 1, custom_id="fine")
    assert worker.bring_to_end(fine).state == "finished"
    again = client.start("order", 1, custom_id="fine", if_exists="new_after_end")
    assert again != fine and worker.process(fine).replaced_by == again
    assert client.start("order", 1, custom_id="fine", if_exists="restart") == again
    with pytest.raises(CustomIdTaken, match="has the custom_id 'fine' already"):
        client.start("order", 1, custom_id="fine", if_exists="error")

    broken = client.start("order", -1, 5, custom_id="bad")
    assert worker.bring_to_end(broken).state == "broken"
    clear_marker(operator.app.resources, "order/2", "a test")
    seen = worker.process(broken)
    for policy in ("restart", "new_after_end"):
        with pytest.raises(StoreDenied) as denied:
            client.start("order", -1, 5, custom_id="bad", if_exists=policy)
        told = str(denied.value)
        assert told.startswith(f"process {broken} has the custom_id 'bad' and is broken; what if_exists={policy} does")
        assert "needs the role recoveryOperator, and this user of MongoDB may not do " in told
        assert "on recovery." in told and told.endswith(
            "Ask an operator to do it, or connect as a user who has the role"
        )
        assert worker.process(broken) == seen, "nothing was changed"
    assert operator.start("order", -1, 5, custom_id="bad", if_exists="restart") == broken
    assert worker.bring_to_end(broken).state == "broken"
    clear_marker(operator.app.resources, "order/2", "a test")
    assert operator.start("order", -1, 5, custom_id="bad", if_exists="new_after_end") != broken
    assert worker.process(broken).state == "aborted"


def test_who_may_not_know_what_is_stored_is_told_the_rest(come_as: As, admin: Database[Any]) -> None:
    """Of an installation whose roles are of before."""
    layout.create(admin)
    come_as(ADMIN).start("order", 1)
    looks: list[dict[str, Any]] = [{"resource": {"db": DATABASE, "collection": ""}, "actions": ["find"]}]
    admin.client.admin.command("createRole", "looker", privileges=looks, roles=[])
    admin.client.admin.command("createUser", "looker", pwd=PASSWORD, roles=["looker"])
    found = come_as("looker").store.disk.use(100)
    assert (found.types["order"].processes, found.types["order"].disk, found.free) == (1, None, None)
    assert found.types["order"].bytes > 0


@pytest.mark.parametrize("role", roles.ROLES)
def test_nobody_does_more(come_as: As, admin: Database[Any], role: str) -> None:
    layout.create(admin)
    for name in definitions.VALIDATORS:
        admin[name].insert_one(valid(name))
    database = come_as(role).store.database
    assert refused(lambda: database.client.drop_database(DATABASE))
    assert refused(lambda: database.client["other"]["things"].insert_one({}))
    assert refused(lambda: database.client["other"]["things"].find_one())
    assert refused(lambda: database.command("createRole", "more", privileges=[], roles=[]))
    for name in definitions.VALIDATORS:
        there, new = (1, 2) if name == schema.OPERATIONS else ("x", "new")
        one: dict[str, Any] = {**valid(name), "_id": new}
        steps = {
            "find": lambda it: it.find_one(),
            "insert": lambda it, one=one: it.insert_one(one),
            "update": lambda it, there=there: it.update_one({"_id": there}, {"$set": {"y": 1}}),
            "remove": lambda it, new=new: it.delete_one({"_id": new}),
            "createIndex": lambda it: it.create_index("y"),
            "collMod": lambda it: it.database.command("collMod", it.name),
            "dropIndex": lambda it: it.drop_index("y"),
            "dropCollection": lambda it: it.drop(),
        }
        may = {what for what, step in steps.items() if not refused(partial(step, database[name]))}
        assert may == roles.ROLES[role].get(name, frozenset()) & steps.keys(), name


def test_who_may_not_create_is_told_what_is_missing(come_as: As, admin: Database[Any]) -> None:
    layout.create(admin)
    admin.command("collMod", "decisions", validator={})
    admin["processes"].drop_index("unsuccessful")
    admin["scanners"].drop()
    wanted = (
        "missing or out of date: index processes.unsuccessful, validator of decisions, collection scanners; and this "
        "user of MongoDB may not change that, which takes collMod and createCollection and createIndex. Run "
        "`recovery init` as a user with the role recoveryOperator"
    )
    worker, operator = come_as(roles.WORKER), come_as(roles.OPERATOR)
    with pytest.raises(ServerRefused) as caught:
        layout.create(worker.store.database)
    assert str(caught.value) == wanted
    layout.create(operator.store.database)
    layout.create(worker.store.database)


def test_doctor_says_which_rights_are_missing(come_as: As, admin: Database[Any]) -> None:
    layout.create(admin)
    bare = [{"resource": {"db": DATABASE, "collection": name}, "actions": ["find"]} for name in definitions.VALIDATORS]
    admin.command("createRole", "bare", privileges=bare, roles=[])
    admin.client.admin.command("createUser", "bare", pwd=PASSWORD, roles=[{"role": "bare", "db": DATABASE}])
    found = rights(come_as("bare").app.resources)
    assert (found.level, found.cause) == (Level.PROBLEM, Cause.RIGHTS_MISSING)
    assert found.found.startswith("bare may not do all of any role; of recoveryClient it lacks insert of ")
    for role in roles.ROLES:
        assert role in rights(come_as(role).app.resources).found
    assert rights(come_as(ADMIN).app.resources).level is Level.OK


def test_a_command_that_is_refused_says_by_which_right(
    come_as: As, admin: Database[Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layout.create(admin)
    admin["actors"].insert_one({"_id": "part"})
    settings = come_as(roles.READER).settings
    monkeypatch.setenv("RECOVERY_MONGO_URI", settings.mongo_uri)
    monkeypatch.setenv("RECOVERY_BROKER_URL", settings.broker_url)
    monkeypatch.setenv("RECOVERY_DATABASE", DATABASE)
    assert execute(["actor", "block", "part"]) == 2
    told = capsys.readouterr().err
    assert "this user of MongoDB may not do update on recovery.auditLog; " in told
    assert "which takes the role recoveryOperator; `recovery doctor` tells what it may do" in told
    assert PASSWORD not in told
    assert execute(["status"]) == 0
    assert execute(["init", "--roles"]) == 2
    monkeypatch.setenv("RECOVERY_MONGO_URI", settings.mongo_uri.replace(roles.READER, ADMIN, 1))
    assert execute(["init", "--roles"]) == 0
    assert "recoveryOperator are up to date" in capsys.readouterr().out


def test_a_real_worker_and_beat(come_as: As, stack: Stack) -> None:
    operator, client, worker = come_as(roles.OPERATOR), come_as(roles.CLIENT), come_as(roles.WORKER)
    environment = worker.settings.environment()
    early = stack.start_worker("tests.cli.shop:app", env=environment)
    assert early.wait(30)
    assert early.exit_code == 2
    assert "Run `recovery init` as a user with the role recoveryOperator" in "\n".join(early.last_lines(5))
    layout.create(operator.store.database)
    stack.start_worker("tests.cli.shop:app", env=environment, concurrency=1)
    stack.start_beat("tests.cli.shop:app", env=environment)
    client.app.actors = shop.app.actors
    assert client.app.result(client.start("twice", 2), timeout=30) == 8
    wait_until(lambda: len(operator.store.scanners.all()) >= 3, 20, "all scanners were nudged, and ran")


MARKS: dict[str, dict[str, Any]] = {
    "removing": {"removing": True},
    "removing, by a key of its own": {"removing": True, "order": "0" * 32},
    "redo": {"redo": ["start"]},
    "redo of a process that runs": {"redo": ["start"], "state": "running"},
    "marker": {"markerDue": True, "state": "broken", "error": {"kind": "Oops", "message": "m", "code": 4001}},
}


@pytest.mark.parametrize("mark", MARKS.values(), ids=MARKS)
def test_a_clients_marks_are_no_orders(come_as: As, mark: dict[str, Any]) -> None:
    """It may write processes; nothing that workers do only by order comes of it."""
    operator, client, worker = come_as(roles.OPERATOR), come_as(roles.CLIENT), come_as(roles.WORKER)
    layout.create(operator.store.database)
    worker.tell()
    others = operator.start("order", 1, 2)
    assert worker.bring_to_end(others).state == "finished"
    wait_until(lambda: not operator.store.removals.live([others]) or worker.scan(), 10, "all to be at rest")
    ends = operator.store.database
    before = {name: list(ends[name].find()) for name in (schema.TASKS, schema.DECISIONS, schema.MARKERS)}
    past = operator.store.now() - timedelta(seconds=1)
    client.store.database["processes"].update_one({"_id": others}, {"$set": {**mark, "recoveryTime": past}})
    assert refused(lambda: client.store.database["orders"].insert_one({"_id": f"{others}/{'0' * 32}"}))
    assert refused(lambda: client.store.database["orders"].find_one())
    for _ in range(3):
        worker.scan()
        worker.pump()
        repair(worker.app.resources, look(worker.app.resources, others))
    assert {name: list(ends[name].find()) for name in before} == before
    assert worker.store.processes.get(others) is not None


FORGED: dict[str, Any] = {"state": "aborted", "redo": ["start"], "labels": ["a=b"], "lives": []}
"""What some fields of a process are set to; the others by their type."""


def forged(process: dict[str, Any], field: str, now: datetime) -> Any:
    """Another value of the same type as the field's."""
    if field in FORGED:
        return FORGED[field]
    kind = shapes_of(Process)[field]
    samples: tuple[Any, ...] = ("forged", 7, 7.0, True, now, {"kind": "Forged", "message": "m"}, {"parent": "0"})
    for sample in samples:
        try:
            from_document(Process, {**process, field: sample})
        except DamagedRecord:
            continue
        return sample
    if kind.choices:
        return kind.choices[0]
    raise AssertionError(f"{field}: nothing fits {kind}")


def test_no_field_that_a_client_writes_touches_what_tasks_came_to(come_as: As) -> None:
    """Each field of a process of another's that has ended: nothing is removed, run again, or marked."""
    operator, client, worker = come_as(roles.OPERATOR), come_as(roles.CLIENT), come_as(roles.WORKER)
    layout.create(operator.store.database)
    worker.tell()
    fields = sorted(shapes_of(Process).keys() - {"_id"})
    ids = {field: operator.start("order", number) for number, field in enumerate(fields)}
    for process_id in ids.values():
        worker.bring_to_end(process_id)
    wait_until(lambda: not operator.store.removals.live([*ids.values()]) or worker.scan(), 10, "all to be at rest")
    database, now = operator.store.database, operator.store.now()

    def what_tasks_came_to() -> dict[str, Any]:
        outcomes = {one["_id"]: one["outcome"] for one in database["decisions"].find()}
        return outcomes | {one["_id"]: one for one in database["markers"].find()}

    before = what_tasks_came_to()
    for field, process_id in ids.items():
        found = database["processes"].find_one({"_id": process_id})
        value = {field: forged(found, field, now), "recoveryTime": now - timedelta(seconds=1)}
        client.store.database["processes"].update_one({"_id": process_id}, {"$set": value})
    for _ in range(2):
        worker.scan()
        worker.pump()
        for process_id in ids.values():
            repair(worker.app.resources, look(worker.app.resources, process_id))
    assert what_tasks_came_to() == before
    assert database["processes"].count_documents({"_id": {"$in": [*ids.values()]}}) == len(ids)
