"""Settings of actors and process types, and blocking, from the command line: each change as it was asked for, or none
at all."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from recovery import Settings
from recovery.cli import setting_values as texts
from recovery.cli.main import app
from recovery.errors import InputError
from recovery.records import ActorPreferences, ProcessTypePreferences, Worker
from recovery.store import Store

ACTOR = ActorPreferences(id="charge", worker_timeout=30)
TYPE = ProcessTypePreferences(id="order", idle_timeout=7)


@pytest.fixture
def store(emptied: Settings) -> Store:
    """A database in which a worker has told of an actor and a process type."""
    store = Store(emptied)
    store.actors.save([ACTOR, ActorPreferences(id="send")])
    store.process_types.save([TYPE])
    return store


@pytest.fixture(autouse=True)
def env(emptied: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**emptied.environment(), "COLUMNS": "200"}.items():
        monkeypatch.setenv(name, value)


def run(*arguments: str) -> Result:
    """Without a process of its own, which would take most of the time."""
    return CliRunner().invoke(app, arguments)


def done(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result
    return result.stdout


def test_an_actors_settings(store: Store) -> None:
    done("actor", "set", "charge", "worker_timeout=2m", "accept_first=false", "max_work_timeouts=3")
    assert store.actors.all()["charge"] == ACTOR.evolve(worker_timeout=120, accept_first=False, max_work_timeouts=3)
    shown = json.loads(done("actor", "show", "charge", "--json"))
    assert shown["settings"]["worker_timeout"] == {"value": 120.0, "from": "operator", "code": 30.0}
    assert shown["settings"]["auto_heartbeat"] == {"value": False, "from": "default"}
    assert "set; the code says 30s" in done("actor", "show", "charge")
    done("actor", "unset", "charge", "worker_timeout", "accept_first")
    assert store.actors.all()["charge"] == ACTOR.evolve(max_work_timeouts=3)


def test_a_process_types_settings(store: Store) -> None:
    done("process-type", "set", "order", "process_timeout=1.5h", "break_after_process_timeout=true")
    assert store.process_types.all()["order"] == TYPE.evolve(process_timeout=5400, break_after_process_timeout=True)
    listed = json.loads(done("process-type", "list", "--json"))
    assert listed["process_types"]["order"]["settings"]["idle_timeout"] == {"value": 7.0, "from": "code"}
    assert "90m" in done("process-type", "list") and "90m" in done("process-type", "show", "order")
    done("process-type", "unset", "order", "process_timeout", "break_after_process_timeout")
    assert store.process_types.all()["order"] == TYPE


def test_what_a_setting_does_not_reach_by_itself_is_told(store: Store) -> None:
    """And by which command it does, as it may be typed; of what holds at once nothing is said."""
    told = done("process-type", "set", "order", "idle_timeout=10m", "process_timeout=2h")
    command = "recovery operation start set_idle_timeout type:order --idle-timeout 10m --reason …"
    assert told.splitlines()[1:] == [
        f"processes that were started already keep the idle_timeout that they have; `{command}` gives it to them"
    ]
    assert "--idle-timeout 7s" in done("process-type", "unset", "order", "idle_timeout"), "what the code says"
    found = json.loads(done("actor", "set", "charge", "worker_timeout=2m", "retry_total=1h", "--json"))
    assert found["not_reached"] == [
        "attempts that run keep the worker_timeout, retry_total that they began with",
        "tasks that wait for a retry wait as long as they were to",
    ]
    assert len(done("actor", "set", "charge", "max_work_timeouts=3", "task_timeout=1h").splitlines()) == 1
    assert store.actors.all()["charge"].worker_timeout == 120


def test_list_and_block(store: Store) -> None:
    worker = Worker(id="w", name="w", host="h", pid=1, pid_started=1, queues=("charge", "send"), paused=("charge",))
    store.workers.beat(worker, 60)
    store.queues.polled({"send": None})
    done("actor", "block", "charge")
    listed: dict[str, dict[str, Any]] = json.loads(done("actor", "list", "--json"))["actors"]
    assert {name: one["blocked"] for name, one in listed.items()} == {"charge": True, "send": False}
    assert {name: one["consumers"] for name, one in listed.items()} == {"charge": 0, "send": 1}
    assert listed["charge"]["polled_seconds_ago"] is None and listed["send"]["polled_seconds_ago"] >= 0
    assert {one["depth"] for one in listed.values()} == {0}
    assert "blocked" in done("actor", "list")
    assert done("actor", "block", "charge").startswith("charge was blocked already: ")
    assert done("actor", "unblock", "charge") == "charge is unblocked: its tasks begin\n"
    assert not store.actors.stored()["charge"].blocked
    assert done("actor", "unblock", "charge") == "charge was not blocked; nothing has changed\n"
    assert done("actor", "block", "charge").startswith(
        "charge is blocked: no task of it begins, and what waits is kept."
    )


@pytest.mark.usefixtures("store")
def test_a_change_says_what_holds_now() -> None:
    keep = "attempts that run keep the worker_timeout that they began with\n"
    told = done("actor", "set", "charge", "worker_timeout=2m", "max_work_timeouts=3")
    assert told == f"charge: worker_timeout=2m (set), max_work_timeouts=3 (set)\n{keep}"
    told = done("actor", "unset", "charge", "worker_timeout", "max_work_timeouts")
    assert told == f"charge: worker_timeout=30s (by the code), max_work_timeouts=10 (by default)\n{keep}"
    assert done("process-type", "set", "order", "process_timeout=1h") == "order: process_timeout=1h (set)\n"


@pytest.mark.parametrize("width", [30, 80])
@pytest.mark.parametrize("terminal", [True, False])
def test_list_cuts_nothing(store: Store, monkeypatch: pytest.MonkeyPatch, width: int, terminal: bool) -> None:
    name = "an_actor_with_a_name_of_forty_characters"
    store.actors.save([ActorPreferences(id=name)])
    done("actor", "set", name, "worker_timeout=2m", "task_timeout=1h", "max_work_timeouts=3", "auto_heartbeat=true")
    monkeypatch.setenv("COLUMNS", str(width))
    if terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    told = done("actor", "list")
    for word in (name, "worker_timeout=2m", "task_timeout=1h", "max_work_timeouts=3", "auto_heartbeat=true"):
        assert word in told
    assert "…" not in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("actor set charg worker_timeout=9", "no actor is named 'charg'; did you mean 'charge'?"),
        ("actor set charge worker_timout=9", "no setting is named 'worker_timout'; did you mean 'worker_timeout'?"),
        (
            "actor set charge accept_first=false worker_timeout=0",
            "worker_timeout must be at least 0.001 seconds, up to 10 years (316,224,000), not 0.0",
        ),
        (
            "actor set charge worker_timeout=99999999999d",
            "charge: worker_timeout must be at least 0.001 seconds, up to 10 years",
        ),
        ("actor set charge requeue_rate=1e9", "requeue_rate=1e9: must be a number of tasks a second"),
        ("actor set charge requeue_rate=9999999999", "tasks a second, up to 1,000,000,000, not 9999999999.0"),
        (
            "actor set charge max_work_timeouts=99999999999999999999999",
            "max_work_timeouts must be from 1 to 1,000,000,000",
        ),
        ("actor set charge accept_first=false max_work_timeouts=" + "9" * 5000, "must be a whole number, up to"),
        (
            "actor set charge task_timeout=" + "9" * 400,
            "must be a duration, for example 90, 90s, 10m, 2h or 1d",
        ),
        (
            "process-type set order idle_timeout=999999999d",
            "order: idle_timeout must be at least 0.001 seconds, up to 10 years",
        ),
        (
            "process-type set order process_timeout=4000d",
            "process_timeout must be 0 (off) or at least 0.001 seconds, up to 10 years",
        ),
        ("actor unset charge colour", "no setting is named 'colour'; there are: worker_timeout,"),
        ("actor block nobody", "no actor is named 'nobody'; there are: charge, send"),
        ("actor unblock chargee", "did you mean 'charge'?"),
        ("actor show x", "no actor is named 'x'"),
        ("actor set charge worker_timeout=2m worker_timeout=3m", "worker_timeout is given twice"),
        (
            "process-type set order worker_timeout=9",
            "worker_timeout is a setting of actors: `recovery actor set order worker_timeout=9`",
        ),
        (
            "actor set charge process_timeout=3",
            "a setting of process types: `recovery process-type set charge process_timeout=3`",
        ),
        ("process-type unset order worker_timeout", "`recovery actor unset order worker_timeout`"),
        ("process-type set order worker_timout=9", "no setting is named 'worker_timout'"),
        ("process-type set charge idle_timeout=9", "no process type is named 'charge'; there are: order"),
    ],
)
def test_refused(store: Store, arguments: str, said: str) -> None:
    before = store.actors.stored(), store.process_types.stored()
    error = run(*arguments.split()).exception
    assert isinstance(error, InputError) and said in str(error)
    assert (store.actors.stored(), store.process_types.stored()) == before


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("0.5s", 0.5), ("2m", 120), ("1h", 3600), ("1d", 86400), ("0", 0)],
)
def test_times(text: str, seconds: float) -> None:
    assert texts.parse(ActorPreferences, [f"task_timeout={text}"]) == {"task_timeout": seconds}


@pytest.mark.parametrize("text", ["2.5", "2.5/s"])
def test_rates(text: str) -> None:
    assert texts.parse(ActorPreferences, [f"requeue_rate={text}"]) == {"requeue_rate": 2.5}
    assert texts.shown("requeue_rate", 2.5) == "2.5/s"


def test_words(store: Store) -> None:
    store.process_types.save([ProcessTypePreferences(id="order")])
    assert done("process-type", "set", "order", "versions=same") == "order: versions=same (set)\n"
    assert store.process_types.all()["order"].versions == "same"
    assert "'any' or 'same'" in str(run("process-type", "set", "order", "versions=newest").exception)
    assert store.process_types.all()["order"].versions == "same"


@pytest.mark.parametrize(
    "assignment",
    [
        "task_timeout",
        *(f"task_timeout={text}" for text in ("", "soon", "-1", "1 h", "1w", "1e3", "nan", "inf", "٣")),
        *(f"requeue_rate={text}" for text in ("", "2m", "fast", "3/m")),
        *(f"accept_first={text}" for text in ("", "1", "yes")),
        *(f"max_work_timeouts={text}" for text in ("", "3.0", "-1", "many")),
    ],
)
def test_values_that_are_none(assignment: str) -> None:
    with pytest.raises(InputError, match="must be"):
        texts.parse(ActorPreferences, [assignment])


def test_what_waits_is_looked_at_by_the_new_time(store: Store) -> None:
    """Deadlines that a setting makes too late are moved, and none that are not."""
    now = store.now()
    day, minute = timedelta(days=1), timedelta(minutes=1)
    record = {"actor": "charge", "state": "queued", "enqueuedAt": now, "recoveryTime": now + day}
    late = {"type": "order", "state": "running", "startedAt": now, "recoveryTime": now + day}
    store.database["decisions"].insert_many([{**record, "_id": "p/a"}, {**record, "_id": "p/b", "actor": "send"}])
    store.database["decisions"].insert_one({**record, "_id": "p/c", "state": "working"})
    store.database["processes"].insert_many([{**late, "_id": "p"}, {**late, "_id": "q", "type": "other"}])

    def deadlines(name: str) -> dict[str, timedelta]:
        return {one["_id"]: one["recoveryTime"] - now for one in store.database[name].find()}

    done("actor", "set", "charge", "task_timeout=1m")
    assert deadlines("decisions") == {"p/a": minute, "p/b": day, "p/c": day}
    done("actor", "set", "charge", "force_finish_after_task_timeout=true")
    assert deadlines("decisions") == {"p/a": minute, "p/b": day, "p/c": minute}
    done("process-type", "set", "order", "process_timeout=1m")
    assert deadlines("processes") == {"p": minute, "q": day}
    done("actor", "unblock", "send")
    assert deadlines("decisions")["p/b"] < minute
