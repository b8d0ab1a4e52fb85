"""What a shell offers: ids, custom ids, actors and process types of the database, and nothing where it does not
answer."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import pytest

from recovery import Settings
from recovery.cli import completion
from recovery.cli.bash_words import joined_words
from recovery.cli.completion import complete_search
from recovery.engine.operations.saved_searches import save_search
from recovery.records import ActorPreferences, Interruption, OperationKind, ProcessTypePreferences
from tests.cli.command import Done, environment, recovery
from tests.cli.template import PATIENCE
from tests.cli.terminal import DISCARD, Typing
from tests.world import World

pytestmark = pytest.mark.thorough


def offered(env: dict[str, str], *words: str, patience: str = "30") -> list[str]:
    """By bash, for the last of these words of a command line."""
    asked = {"_RECOVERY_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(("recovery", *words)), PATIENCE: patience}
    done = recovery(env={**env, **asked, "COMP_CWORD": str(len(words))})
    assert (done.stderr, "Traceback" in done.stdout) == ("", False)
    return [line for line in done.stdout.splitlines() if line]


def asked_by(shell: str, env: dict[str, str], line: str, **more: str) -> Done:
    """What zsh or fish are answered, who send the line as it stands before the cursor."""
    asked = {"_RECOVERY_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line, PATIENCE: "30"}
    done = recovery(env={**env, **more, **asked})
    assert (done.stderr, "Traceback" in done.stdout) == ("", False)
    return done


def offered_by(shell: str, env: dict[str, str], line: str) -> list[str]:
    """As the shell reads it: zsh is told to call `_arguments`, with colons escaped for it; fish has a word a line, and
    help after a tab."""
    if shell == "fish":
        said = asked_by(shell, env, line, _TYPER_COMPLETE_FISH_ACTION="get-args").stdout
        return [one.partition("\t")[0] for one in said.splitlines() if one]
    said = asked_by(shell, env, line).stdout.strip()
    if said == "_files":
        return []
    assert said.startswith("_arguments '*: :((") and said.endswith("))'")
    values = [re.match(r'"((?:[^"]|"")*)"', one) for one in said.removeprefix("_arguments '*: :((")[:-3].splitlines()]
    return [value[1].replace(r"\\:", ":").replace('""', '"') for value in values if value is not None]


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
    ids = [world.start("order", custom_id=name) for name in ("web-1", "web-2", None)]
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
        world.start("order", custom_id=f"web-{number}", labels=labels)
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


LINES = {
    "recovery operation start ": [kind.value for kind in OperationKind],
    "recovery operation start se": ["set_idle_timeout"],
    "recovery operation start set_idle_timeout --idle": ["--idle-timeout"],
    "recovery operation start check 'overdue st": ["overdue state:", "overdue started:"],
    "recovery find state:br": ["state:broken"],
    "recovery find label.customer:": ['label.customer:"acme 1"', 'label.customer:"acme 2"', "label.customer:bolt"],
    "recovery show web-": ["web-0", "web-1", "web-2", "web-3"],
    "recovery actor block ch": ["charge_card"],
    "recovery actor block zz": [],
    "recovery process-type en": ["enable"],
}
"""{a line up to the cursor: what is offered}."""


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_what_other_shells_are_answered(labelled: World, shell: str) -> None:
    env = labelled.settings.environment()
    assert {line: offered_by(shell, env, line) for line in LINES} == LINES


def test_fish_asks_whether_there_is_anything(labelled: World) -> None:
    """Else it offers files."""
    env = labelled.settings.environment()
    for line, wanted in LINES.items():
        done = asked_by("fish", env, line, _TYPER_COMPLETE_FISH_ACTION="is-args")
        assert (done.returncode, done.stdout.strip()) == (0 if wanted else 1, ""), line


@pytest.mark.parametrize(
    ("shell", "calls"),
    [
        ("bash", "complete -o default -F _recovery_completion recovery"),
        ("zsh", "compdef _recovery_completion recovery"),
        ("fish", "complete --command recovery"),
    ],
)
def test_the_script_for_a_shell(shell: str, calls: str) -> None:
    script = recovery(env={"_RECOVERY_COMPLETE": f"source_{shell}"}).stdout
    assert calls in script and f"_RECOVERY_COMPLETE=complete_{shell}" in script


def test_kinds_of_operations(world: World) -> None:
    env = world.settings.environment()
    assert offered(env, "operation", "start", "") == [kind.value for kind in OperationKind]
    assert offered(env, "operation", "start", "set") == ["set_idle_timeout"]
    assert offered(env, "operation", "start", "restart") == ["restart", "restart_from"]
    assert offered(env, "operation", "start", "set_idle_timeout", "--idle") == ["--idle-timeout"]


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
