"""What waits for nobody is told by all commands that show it, at once, and with what to do about it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from recovery import Recovery, Settings
from recovery.cli import start_commands
from recovery.cli.main import app
from recovery.engine.end.abort import abort_as_seen
from recovery.engine.operators import abort as aborting
from recovery.errors import InputError, ResultTimeout, UnknownActor
from recovery.queue import Broker
from recovery.records import ActorPreferences, Decision, DecisionState, ScannerRun, Worker
from recovery.store import Store
from tests.cli import shop
from tests.emptied import without_index
from tests.store.writing import put

LONELY = "no worker serves twice"
APP = "tests.cli.shop:app"


@pytest.fixture
def store(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A cluster with one worker, which serves `double` alone. Its workers know nothing of `twice`."""
    for name, value in {**emptied.environment(), "COLUMNS": "300", "RECOVERY_APP": APP}.items():
        monkeypatch.setenv(name, value)
    store = Store(emptied)
    store.actors.save([ActorPreferences(id="double")])
    serve(store, "double")
    return store


@pytest.fixture
def shop_app(store: Store, emptied: Settings) -> Recovery:
    """The application of a client, on this test's database."""
    assert store
    client = Recovery(emptied)
    client.actors = shop.app.actors
    return client


@pytest.fixture
def process_id(store: Store, shop_app: Recovery) -> str:
    """A process whose start task waits, as all are told."""
    started = start(shop_app)
    store.catch_up(10)
    return started


def start(client: Recovery) -> str:
    """Start a process that is registered when this returns."""
    process_id = client.start("twice", 3)
    client.registrar.flush()
    return process_id


def serve(store: Store, *queues: str) -> None:
    store.workers.beat(Worker(id="w", name="w", host="h", pid=1, pid_started=1, queues=queues), 60)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def done(*arguments: str, code: int = 0) -> str:
    result = run(*arguments)
    assert result.exit_code == code, result
    return result.stdout


def refused(*arguments: str) -> str:
    error = run(*arguments).exception
    assert isinstance(error, InputError), error
    return str(error)


def test_why_a_process_waits_is_known_without_the_index_of_refused_tasks(
    store: Store, shop_app: Recovery, process_id: str
) -> None:
    """As before `recovery init` has made it."""
    with without_index(store, "decisions", "refused"):
        (reason,) = start_commands._reasons(shop_app.resources, process_id)
    assert LONELY in reason


def test_check_is_not_healthy(store: Store, process_id: str) -> None:
    told = done("check", process_id, code=1)
    assert f"NO_ACTORS  {process_id}/start  queued, {LONELY} → wait" in told and "healthy" not in told
    found = json.loads(done("check", process_id, "--repair", "--json", code=1))
    assert (found["healthy"], found["repaired"], len(found["left"])) == (False, {}, 1)
    serve(store, "twice")
    assert "healthy" in done("check", process_id)


def test_check_past_the_deadline(store: Store, process_id: str) -> None:
    """The scanners' own finding says no more than the rule; it stands once."""
    past = {"recoveryTime": store.now() - timedelta(hours=1)}
    store.database["decisions"].update_one({"_id": f"{process_id}/start"}, {"$set": past})
    (finding,) = json.loads(done("check", process_id, "--json", code=1))["findings"]
    assert (finding["rule"], finding["evidence"]) == ("NO_ACTORS", f"queued, {LONELY}")


def test_check_counts_many_tasks_of_one_actor_once(store: Store, process_id: str) -> None:
    now = store.now()
    queued = {"state": DecisionState.QUEUED, "queued_at": now, "recovery_time": now + timedelta(days=1)}
    put(store, *(Decision(id=f"{process_id}/t{n}", actor="lost", **queued) for n in range(30)))  # type: ignore[arg-type]
    found = json.loads(done("check", process_id, "--json", code=1))["findings"]
    assert [one["evidence"] for one in found if "lost" in one["evidence"]] == [
        "30 tasks, each queued, no worker serves lost"
    ]


def test_check_with_all_workers_gone(store: Store, process_id: str) -> None:
    store.workers.remove(["w"])
    told = json.loads(done("check", process_id, "--json", code=1))["findings"]
    assert [one["rule"] for one in told] == ["SERVERS_WERE_DOWN"]
    working = {"state": "working", "worker": "w#1"}
    store.database["decisions"].update_one({"_id": f"{process_id}/start"}, {"$set": working})
    (finding,) = json.loads(done("check", process_id, "--json", code=1))["findings"]
    assert (finding["record"], finding["evidence"]) == (
        process_id,
        "no worker is alive that serves an actor: nothing of it goes on",
    )


def test_show_and_status(store: Store, process_id: str) -> None:
    assert "twice  queued  for " in done("show", process_id)
    assert LONELY in done("show", process_id)
    status = json.loads(done("status", "--json"))
    assert status["queues"]["twice"] | {"oldest_seconds": 0} == {
        "depth": 1, "polled_seconds_ago": None, "tasks": 1, "oldest_seconds": 0, "delayed": 0, "after_others": 0,
        "workers": [],
        "blocked_seconds": None, "problem": LONELY,
    }  # fmt: skip
    assert (status["queues"]["double"]["workers"], status["queues"]["double"]["problem"]) == (["w"], None)
    assert LONELY in done("status")
    serve(store, "double", "twice")
    assert LONELY not in done("status") + done("show", process_id)


def test_show_of_many(store: Store, process_id: str) -> None:
    """Where alike tasks are counted together."""
    now = store.now()
    store.database["tasks"].insert_many(
        {"_id": f"{process_id}/t{n}", "actor": "lost", "args": "", "parent": "start"} for n in range(250)
    )
    made = [Decision(id=f"{process_id}/t{n}", actor="lost", state=DecisionState.QUEUED) for n in range(250)]
    put(store, *(one.evolve(queued_at=now, recovery_time=now) for one in made))
    assert "250 × lost  queued  no worker serves lost" in done("show", process_id)


def test_a_blocked_actor_is_told_as_blocked(store: Store, process_id: str) -> None:
    store.actors.save([ActorPreferences(id="twice")])
    store.actors.block("twice")
    blocked = "twice has been blocked for "
    for served in (False, True):
        if served:
            serve(store, "double", "twice")
        assert blocked in done("check", process_id, code=1)
        assert blocked in done("show", process_id) and blocked in done("status")
        assert LONELY not in done("show", process_id)


def test_start_tells_while_it_waits(store: Store, emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_commands, "LOOK_EVERY", 0.2)
    monkeypatch.setitem(shop.app.__dict__, "settings", emptied)
    monkeypatch.setattr(shop.app, "_connected", {})
    waited = run("start", "twice", "3", "--wait", "1.5")
    assert isinstance(waited.exception, ResultTimeout) and "within 1.5s" in str(waited.exception)
    assert waited.stderr.count(LONELY) == 1
    serve(store, "double", "twice")
    waited = run("start", "twice", "3", "--wait", "0.6")
    assert waited.stderr.count("no beat nudges: no nudge was ever taken") == 1, "once, while it waits"
    assert "no worker scans by itself yet" in waited.stderr and "`recovery beat`" in waited.stderr
    store.scanners.note(ScannerRun(id="decisions"), by_beat=False)
    assert "workers scan by themselves" in run("start", "twice", "3", "--wait", "0.6").stderr
    Broker(emptied.broker_url).note_nudge()
    assert run("start", "twice", "3", "--wait", "0.6").stderr == ""


def test_actor_list_has_what_no_worker_told_of(process_id: str) -> None:
    assert process_id
    listed = json.loads(done("actor", "list", "--json"))["actors"]
    assert {name: (one["tasks"], one["consumers"]) for name, one in listed.items()} == {
        "double": (0, 1),
        "twice": (1, 0),
    }
    assert "twice" in done("actor", "list")


def test_what_waits_is_aborted_and_its_actor_forgotten(store: Store, shop_app: Recovery, process_id: str) -> None:
    """As the doctor advises: of a function that was renamed."""
    store.actors.save([ActorPreferences(id="twice")])
    done("actor", "set", "twice", "worker_timeout=9s")
    others = [start(shop_app) for number in range(3)]
    said = refused("actor", "forget", "twice")
    assert "4 queued" in said and "`recovery broken abort --waiting-for twice`" in said
    assert done("broken", "abort", "--waiting-for", "twice").startswith("would abort 4 processes")
    assert "would abort 2 processes" in done("broken", "abort", "--waiting-for", "twice", "--limit", "2")
    assert done("broken", "abort", "--waiting-for", "twice", "--limit", "1", "--yes") == "1 process aborted\n"
    assert done("broken", "abort", "--waiting-for", "twice", "--yes", "--reason", "renamed") == "3 processes aborted\n"
    found = store.processes.briefs([process_id, *others]).values()
    assert [process.state for process in found] == ["aborted"] * 4
    assert [process.error.message for process in found if process.error].count("renamed") == 3
    assert done("actor", "forget", "twice").startswith("twice is forgotten, and with it what was set: worker_timeout;")
    assert "twice" not in store.actors.stored() and "twice" not in json.loads(done("status", "--json"))["queues"]
    assert isinstance(run("actor", "forget", "twice").exception, UnknownActor)


def test_an_actor_in_use_is_not_forgotten(store: Store) -> None:
    assert "served by w" in refused("actor", "forget", "double")
    store.workers.remove(["w"])
    store.queues.polled({"double": None})
    assert "its worker was there a moment ago" in refused("actor", "forget", "double")
    store.database["queues"].delete_many({})
    for state in ("delayed", "working"):
        put(store, Decision(id=f"p/{state}", actor="double", state=DecisionState(state), recovery_time=store.now()))
        assert f"1 {state}" in refused("actor", "forget", "double")
        store.database["decisions"].delete_many({})
    store.actors.block("double")
    assert "it is blocked" in refused("actor", "forget", "double")
    store.actors.unblock("double")
    assert "double" in store.actors.stored()
    done("actor", "forget", "double")


def test_the_rest_goes_on_once_a_worker_comes(
    store: Store, shop_app: Recovery, process_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two batches: the list was made before."""
    ids = sorted([process_id, *(start(shop_app) for number in range(3))])
    store.catch_up(10)

    def abort_and_serve(*args: Any) -> int:
        done = abort_as_seen(*args)
        serve(store, "double", "twice")
        return done

    monkeypatch.setattr(aborting, "BATCH", 2)
    monkeypatch.setattr(aborting, "abort_as_seen", abort_and_serve)
    with pytest.raises(InputError, match="twice is served by w by now: 2 processes aborted, the others go on"):
        aborting.abort_waiting(shop_app.resources, "twice", "renamed")
    states = {key: process.state for key, process in store.processes.briefs(ids).items()}
    assert [states[key] for key in ids] == ["aborted", "aborted", "running", "running"]
    (entry,) = store.audit_log.newest(1)
    assert entry.outcome is not None and entry.outcome.startswith("refused: InputError: twice is served by w by now")


@pytest.mark.parametrize("since", ["decided", "epoch", "reopened"])
def test_what_waits_no_more_is_left_alone(
    store: Store, shop_app: Recovery, process_id: str, since: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its task was decided since the list was made; or the process is done again, or reopened, just then."""
    if since == "decided":
        listed = aborting.waiting_for(shop_app.resources, "twice")
        monkeypatch.setattr(aborting, "waiting_for", lambda *_: listed)
        store.database["decisions"].update_one({"_id": f"{process_id}/start"}, {"$set": {"state": "finished"}})
    else:
        still = store.pending.still_waiting

        def done_again(*args: Any) -> set[str]:
            found = still(*args)
            store.database["processes"].update_one({"_id": process_id}, {"$inc": {since: 1}})
            return found

        monkeypatch.setattr(type(store.pending), "still_waiting", lambda _, *args: done_again(*args))
    assert aborting.abort_waiting(shop_app.resources, "twice", "renamed") == 0
    process = store.processes.get(process_id)
    assert process is not None and process.state == "running"


def test_what_is_served_is_not_aborted_as_a_group(store: Store, process_id: str) -> None:
    serve(store, "twice")
    assert "twice is served by w" in refused("broken", "abort", "--waiting-for", "twice", "--yes")
    assert "twice is served by w" in refused("broken", "abort", "--waiting-for", "twice")
    assert "did you mean 'twice'?" in refused("broken", "abort", "--waiting-for", "twise", "--yes")
    assert "goes with" in refused("broken", "abort", process_id, "--waiting-for", "twice")
    process = store.processes.get(process_id)
    assert process is not None and process.state == "running"
