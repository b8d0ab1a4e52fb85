"""What a shell offers: ids, custom ids, actors and process types of the database, and nothing where it does not
answer."""

from __future__ import annotations

import time

import pytest

from recovery import Settings
from recovery.records import ActorPreferences, ProcessTypePreferences
from recovery.store import schema
from tests.cli.command import recovery
from tests.world import World


def offered(env: dict[str, str], *words: str) -> list[str]:
    """By bash, for the last of these words of a command line."""
    asked = {"_RECOVERY_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(("recovery", *words))}
    done = recovery(env={**env, **asked, "COMP_CWORD": str(len(words))})
    assert (done.stderr, "Traceback" in done.stdout) == ("", False)
    return done.stdout.split()


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


def test_silent_where_servers_are_away(settings: Settings) -> None:
    env = settings.model_copy(update={"mongo_uri": "mongodb://192.0.2.1:27017"}).environment()
    began = time.monotonic()
    assert offered(env, "show", "0") == offered(env, "actor", "block", "") == []
    assert time.monotonic() - began < 10
    assert offered({**env, "RECOVERY_MONGO_URI": "nonsense"}, "show", "0") == []
