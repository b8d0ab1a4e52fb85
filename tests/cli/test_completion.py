"""What a shell offers: ids, custom ids, actors and process types of the database, and nothing where it does not
answer."""

from __future__ import annotations

import time

import pytest

from recovery import Settings
from recovery.engine.operations.saved_searches import save_search
from recovery.records import ActorPreferences, Interruption, ProcessTypePreferences
from recovery.store import schema
from tests.cli.command import recovery
from tests.world import World


def offered(env: dict[str, str], *words: str) -> list[str]:
    """By bash, for the last of these words of a command line."""
    asked = {"_RECOVERY_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(("recovery", *words))}
    done = recovery(env={**env, **asked, "COMP_CWORD": str(len(words))})
    assert (done.stderr, "Traceback" in done.stdout) == ("", False)
    return [line for line in done.stdout.splitlines() if line]


@pytest.fixture
def world(settings: Settings) -> World:
    made = World(settings)
    schema.create(made.store.database)

    @made.app.process()
    def order() -> None: ...

    made.store.actors.save([ActorPreferences(id="charge_card"), ActorPreferences(id="send_mail")])
    made.store.process_types.save([ProcessTypePreferences(id="order")])
    return made


def test_what_there_is(world: World) -> None:
    env = world.settings.environment()
    ids = [world.app.start("order", custom_id=name) for name in ("web-1", "web-2", None)]
    world.store.catch_up(10)
    assert offered(env, "actor", "block", "") == ["charge_card", "send_mail"]
    assert offered(env, "actor", "set", "ch") == ["charge_card"]
    assert offered(env, "broken", "list", "--type", "o") == ["order"]
    for command in (["show"], ["check"], ["broken", "restart"]):
        assert offered(env, *command, ids[0]) == [ids[0]]
        assert offered(env, *command, "web-") == ["web-1", "web-2"]
    assert offered(env, "show", "0")[:3] == ids[::-1], "the newest first"


@pytest.fixture
def labelled(world: World) -> World:
    """With labels, a saved search, and what is broken."""
    for number, customer in enumerate(("bolt", "acme 1", "acme 2", "acme 1")):
        labels = {"customer": customer, "region": "eu", "a-b": "x"}
        world.app.start("order", custom_id=f"web-{number}", labels=labels)
    save_search(world.app.resources, "stuck-orders", "type:order idle:>1h")
    for number, kind in enumerate(("OSError", "TimeoutError", "OSError")):
        one = Interruption(
            id=f"p/t{number}", type="order", actor="pay", kind=kind, message="", fingerprint="f", code=20020
        )
        world.store.interruptions.add(one)
    world.store.catch_up(10)
    return world


OFFERED = {
    ("find", "'state:br"): ["state:broken"],
    ("find", "'idle:>1h (type:o"): ["idle:>1h (type:order"],
    ("find", "'actor:s"): ["actor:send_mail"],
    ("find", "'error:"): ["error:OSError", "error:TimeoutError"],
    ("find", "'code:2"): ["code:20020"],
    ("find", "'rule:MESSAGE_L"): ["rule:MESSAGE_LOST"],
    ("find", "'label."): ["label.a-b:", "label.customer:", "label.region:"],
    ("find", "'label.reg"): ["label.region:eu"],
    ("find", "'label.customer:"): ['label.customer:"acme 1"', 'label.customer:"acme 2"', "label.customer:bolt"],
    ("find", "'label.customer:b"): ["label.customer:bolt"],
    ("find", "'custom:web-3"): ["custom:web-3"],
    ("find", "'not @st"): ["not @stuck-orders"],
    ("operation", "start", "check", "'state:running ov"): ["state:running overdue"],
    ("search", "remove", "s"): ["stuck-orders"],
    ("search", "save", "new", "'state:ab"): ["state:aborted"],
    ("list", "--state", "f"): ["finished"],
    # As bash takes them apart outside of quotes, and what it keeps.
    ("find", "state", ":", "br"): ["broken"],
    ("find", "state", ":"): ["running", "finished", "broken", "aborted"],
    ("find", "label.customer", ":", "bo"): ["bolt"],
    ("find", "@", "stuck"): ["@stuck-orders"],
    ("find", "@"): ["@stuck-orders"],
}


def test_a_search(labelled: World) -> None:
    env = labelled.settings.environment()
    for words, wanted in OFFERED.items():
        assert offered(env, *words) == wanted, words


def test_labels_cost_a_seek_each(labelled: World) -> None:
    """However many processes have one."""
    processes = labelled.store.database["processes"]
    many = [{"_id": f"p{n}", "type": "order", "state": "finished", "labels": ["customer=acme 1"]} for n in range(500)]
    processes.insert_many(many, bypass_document_validation=True)
    query = {"labels": {"$exists": True, "$elemMatch": {"$gt": "customer=acme 1", "$lt": "customer=b"}}}
    told = processes.find(query).hint("labels").limit(1).explain()["executionStats"]
    assert (told["totalKeysExamined"], told["nReturned"]) == (1, 1)
    assert labelled.store.labels.values("customer", "acme", 50) == ["acme 1", "acme 2"]
    assert labelled.store.labels.names("", 2) == ["a-b", "customer"]


def test_silent_where_servers_are_away(settings: Settings) -> None:
    env = settings.model_copy(update={"mongo_uri": "mongodb://192.0.2.1:27017"}).environment()
    began = time.monotonic()
    assert offered(env, "show", "0") == offered(env, "actor", "block", "") == []
    assert time.monotonic() - began < 10
    assert offered({**env, "RECOVERY_MONGO_URI": "nonsense"}, "show", "0") == []
