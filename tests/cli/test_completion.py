"""What a shell offers: ids, custom ids, actors and process types of the database, and nothing where it does not
answer."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from recovery import Settings
from recovery.cli import completion
from recovery.cli.bash_words import joined_words
from recovery.cli.completion import complete_search
from recovery.engine.operations.saved_searches import save_search
from recovery.records import ActorPreferences, Interruption, ProcessTypePreferences
from tests.cli.command import environment, recovery
from tests.cli.template import PATIENCE
from tests.cli.terminal import DISCARD, Typing
from tests.world import World


def offered(env: dict[str, str], *words: str, patience: str = "30") -> list[str]:
    """By bash, for the last of these words of a command line."""
    asked = {"_RECOVERY_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(("recovery", *words)), PATIENCE: patience}
    done = recovery(env={**env, **asked, "COMP_CWORD": str(len(words))})
    assert (done.stderr, "Traceback" in done.stdout) == ("", False)
    return [line for line in done.stdout.splitlines() if line]


@pytest.fixture
def world(emptied: Settings) -> World:
    made = World(emptied)

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
    "state:br": ["state:broken"],
    "idle:>1h (type:o": ["idle:>1h (type:order"],
    "actor:s": ["actor:send_mail"],
    "error:": ["error:OSError", "error:TimeoutError"],
    "fingerprint:": ["fingerprint:f"],
    "code:2": ["code:20020"],
    "rule:MESSAGE_L": ["rule:MESSAGE_LOST"],
    "label.": ["label.a-b:", "label.customer:", "label.region:"],
    "label.reg": ["label.region:eu"],
    "label.customer:": ['label.customer:"acme 1"', 'label.customer:"acme 2"', "label.customer:bolt"],
    "label.customer:b": ["label.customer:bolt"],
    "custom:web-3": ["custom:web-3"],
    "not @st": ["not @stuck-orders"],
}


def test_a_search(labelled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in labelled.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(completion, "TIMEOUT", 30.0)
    assert {typed: complete_search(typed) for typed in OFFERED} == OFFERED


def test_where_searches_are_given(labelled: World) -> None:
    env = labelled.settings.environment()
    assert offered(env, "operation", "start", "check", "'overdue st") == ["overdue state:", "overdue started:"]
    assert offered(env, "search", "remove", "s") == ["stuck-orders"]
    assert offered(env, "search", "save", "new", "'state:ab") == ["state:aborted"]
    assert offered(env, "list", "--state", "f") == ["finished"]
    # As bash takes it apart outside of quotes.
    assert offered(env, "find", "state", ":") == ["running", "finished", "broken", "aborted"]


@pytest.mark.parametrize(
    ("words", "joined", "kept"),
    [
        (["find", "state", ":", "br"], ["find", "state:br"], "state:"),
        (["find", "state", ":"], ["find", "state:"], "state:"),
        (["find", "label.customer", ":", "bo"], ["find", "label.customer:bo"], "label.customer:"),
        (["find", "@", "stuck"], ["find", "@stuck"], ""),
        (["find", "@"], ["find", "@"], ""),
        (["find", "'type:order @st"], ["find", "'type:order @st"], ""),
        (["show", "web", ":", "1", "--jso"], ["show", "web:1", "--jso"], ""),
        (["find", ""], ["find", ""], ""),
    ],
)
def test_words_that_bash_takes_apart(words: list[str], joined: list[str], kept: str) -> None:
    assert joined_words(words) == (joined, kept)


TYPED = {
    "recovery find state:br": "recovery find state:broken ",
    "recovery find '(overdue @st": "recovery find '(overdue @stuck-orders' ",
    "recovery find @st": "recovery find @stuck-orders ",
}
"""{what is typed before the tab key: what the line is after it}."""


def test_in_bash(labelled: World, tmp_path: Path) -> None:
    command = tmp_path / "recovery"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m recovery "$@"\n')
    command.chmod(0o755)
    env = environment({**labelled.settings.environment(), "PATH": f"{tmp_path}:{os.environ['PATH']}", "TERM": "dumb"})
    script = recovery(env={**env, "_RECOVERY_COMPLETE": "source_bash"}).stdout
    (tmp_path / "rc").write_text(f"PS1='ready> '\nbind 'set enable-bracketed-paste off'\n{script}")
    with Typing(["bash", "--noprofile", "--rcfile", str(tmp_path / "rc"), "-i"], env) as bash:
        for typed, wanted in TYPED.items():
            bash.wait_for("ready> ")
            bash.type(f"{typed}\t")
            bash.wait_for(wanted)
            bash.type(DISCARD)


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
    assert offered(env, "show", "0", patience="") == offered(env, "actor", "block", "", patience="") == []
    assert time.monotonic() - began < 10
    assert offered({**env, "RECOVERY_MONGO_URI": "nonsense"}, "show", "0", patience="") == []
