"""What a shell offers: ids, custom ids, actors and process types of the database, and nothing where it does not
answer."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from recovery import Settings
from recovery.cli import shell_completion
from recovery.cli.main import app
from recovery.cli.shell_completion import OF_FIELDS, complete_search, joined_words
from recovery.engine.operators.saved_searches import save_search
from recovery.records import ActorPreferences, Interruption, OperationKind, ProcessTypePreferences
from tests.cli.command import Done, environment, recovery
from tests.cli.shells import COMMANDS, Shell
from tests.cli.template import PATIENCE
from tests.cli.terminal import DISCARD, Typing
from tests.world import World

pytestmark = pytest.mark.thorough


def offered_in_bash(env: dict[str, str], *words: str, patience: str = "30") -> list[str]:
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
    assert offered_in_bash(env, "actor", "block", "") == ["charge_card", "send_mail"]
    assert offered_in_bash(env, "actor", "set", "ch") == ["charge_card"]
    assert offered_in_bash(env, "broken", "list", "--type", "o") == ["order"]
    for command in (["show"], ["check"], ["broken", "restart"]):
        assert offered_in_bash(env, *command, ids[0]) == [ids[0]]
        assert offered_in_bash(env, *command, "web-") == ["web-1", "web-2"]
    assert offered_in_bash(env, "show", "0")[:3] == ids[::-1], "the newest first"


@pytest.fixture
def labelled(world: World) -> World:
    """With labels, a saved search, and what is broken."""
    for number, customer in enumerate(("bolt", "acme 1", "acme 2", "acme 1")):
        labels = {"customer": customer, "region": "eu", "a-b": "x"}
        world.start("order", custom_id=f"web-{number}", labels=labels)
    save_search(world.app.resources, "stuck-orders", "type:order idle:longer(1h)")
    for number, kind in enumerate(("OSError", "TimeoutError", "OSError")):
        one = Interruption(
            id=f"p/t{number}", type="order", actor="pay", kind=kind, message="", fingerprint="f", code=20020
        )
        world.store.interruptions.add(one)
    world.store.catch_up(10)
    return world


OFFERED = {
    "state:br": ["state:broken"],
    "idle:longer(1h) (type:o": ["idle:longer(1h) (type:order"],
    "actor:s": ["actor:send_mail"],
    "error:": ["error:OSError", "error:TimeoutError"],
    "fingerprint:": ["fingerprint:f"],
    "code:2": ["code:20020"],
    "rule:MESSAGE_L": ["rule:MESSAGE_LOST"],
    "label.": ["label.a-b:", "label.customer:", "label.region:"],
    "label.reg": ["label.region:eu"],
    "label.customer:": ["label.customer:bolt"],
    "label.customer:b": ["label.customer:bolt"],
    "custom:web-3": ["custom:web-3"],
    "not @st": ["not @stuck-orders"],
}


def test_a_search(labelled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in labelled.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(shell_completion, "TIMEOUT", 30.0)
    assert {typed: complete_search(typed) for typed in OFFERED} == OFFERED


def test_where_searches_are_given(labelled: World) -> None:
    env = labelled.settings.environment()
    assert offered_in_bash(env, "operation", "start", "check", "'overdue st") == ["overdue state:", "overdue started:"]
    assert offered_in_bash(env, "search", "remove", "s") == ["stuck-orders"]
    assert offered_in_bash(env, "search", "save", "new", "'state:ab") == ["state:aborted"]
    assert offered_in_bash(env, "list", "--state", "f") == ["finished"]
    # As bash takes it apart outside of quotes.
    assert offered_in_bash(env, "find", "state", ":") == ["running", "finished", "broken", "aborted"]


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
        (["show", "a", "=", "b"], ["show", "a=b"], "a="),
        (["show", "a", "="], ["show", "a="], "a="),
        (["show", "a", "=", ""], ["show", "a=", ""], ""),
        (["find", "custom", ":", "a", "=", "b"], ["find", "custom:a=b"], "custom:a="),
        (["find", "custom", ":=", "b"], ["find", "custom:=b"], "custom:="),
        (["show", "a", "::", "b"], ["show", "a::b"], "a::"),
        (["find", "custom", ":@", "b"], ["find", "custom:@b"], "custom:"),
        (["find", "overdue", "@", "stuck"], ["find", "overdue", "@stuck"], ""),
        (["find", "@", "a", "=", "b"], ["find", "@a=b"], "@a="),
        (["list", "--state", "=", "f"], ["list", "--state=f"], ""),
        (["x", "--selection", "=", "state", ":", "f"], ["x", "--selection=state:f"], "state:"),
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


HOSTILE = [
    "a;touch${IFS}ran",
    "b$(touch ran)",
    "c`touch ran`",
    "d'$(touch ran)'",
    'e"$(touch ran)"',
    "f|touch ran",
    "g\ntouch ran",
    "h&touch ran",
    "i>ran",
    "j\\$(touch ran)",
    "k\\`touch ran`",
    "l${(e):-$(touch ran)}",
    "m(touch ran)",
    "n*",
    "o~",
    "p{q,r}",
    "=ls",
    "q==ls",
    "r:=ls",
    "--reason=because",
    "ünlike",
]
"""Custom ids with a meaning to a shell or a command, each with a beginning of its own."""
PLAIN = "well.known:1/a@b=c+d-e_F"
WITH_EQUALS = "size=1:x=y"


@pytest.fixture
def hostile(world: World) -> World:
    """With texts in every place from which values are offered."""
    for text in (*HOSTILE, PLAIN, WITH_EQUALS):
        world.start("order", custom_id=text, labels={"customer": text.replace("\n", " ")})
    world.store.actors.save([ActorPreferences(id=text) for text in HOSTILE])
    world.store.process_types.save([ProcessTypePreferences(id=text) for text in HOSTILE])
    save_search(world.app.resources, "stuck-orders", "type:order idle:longer(1h)")
    for number, text in enumerate(HOSTILE):
        one = Interruption(
            id=f"p/t{number}", type="order", actor="pay", kind=text, message="", fingerprint=text, code=20020
        )
        world.store.interruptions.add(one)
    world.store.database["savedSearches"].insert_many(
        [{"_id": text, "text": "overdue"} for text in HOSTILE], bypass_document_validation=True
    )
    world.store.catch_up(len(HOSTILE) + 2)
    return world


def completed_parameters(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Each parameter of the command, and of the commands in it, whose values are completed."""
    for parameter in command.params:
        if parameter._custom_shell_complete is not None:
            yield " ".join((*path, parameter.name)), parameter
    for name, inner in getattr(command, "commands", {}).items():
        yield from completed_parameters(inner, (*path, name))


def test_no_parameter_is_offered_a_text_that_a_shell_runs(hostile: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in hostile.settings.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(shell_completion, "TIMEOUT", 30.0)
    found = dict(completed_parameters(typer.main.get_command(app)))
    assert {"show process_id", "find query", "actor set name", "list process_type"} <= found.keys(), found.keys()
    searches = [f"{name}:" for name in (*OF_FIELDS, "label.customer")] + ["@", "", "overdue "]
    for name, parameter in found.items():
        for typed in (*searches, *(text[:1] for text in HOSTILE)):
            offered = [item.value for item in parameter.shell_complete(None, typed)]
            assert all(re.fullmatch(r"[A-Za-z0-9._:@/+=-]+", value.removeprefix("overdue ")) for value in offered), name
            assert not any(re.search("(^|[ :=])=", value) for value in offered), name
    everything = [item.value for item in found["find query"].shell_complete(None, "custom:")]
    assert f"custom:{PLAIN}" in everything


@pytest.mark.parametrize(
    ("typed", "shell", "offered"),
    [
        ('\'error:"a b" state:ab', "bash", ['error:"a b" state:aborted']),
        (r"""'error:"C:\\" state:ab""", "bash", [r'error:"C:\\" state:aborted']),
        ('"overdue state:ab', "bash", ["overdue state:aborted"]),
        (r'"error:\"C:\" state:ab', "bash", []),
        (r"overdue\ state:ab", "bash", []),
        ("'overdue'\"'\" state:ab", "bash", []),
        ("'$(touch ran) state:ab", "bash", []),
        (r"""recovery find 'error:"C:\\" state:ab""", "fish", [r'error:"C:\\" state:aborted']),
        ("recovery find '$(touch ran) state:ab", "fish", []),
        ('recovery find \'error:"a b" state:ab', "zsh", []),
        ("recovery find '$(touch ran) state:ab", "zsh", []),
    ],
)
def test_what_was_typed_before_is_repeated_where_it_stays_as_it_is(
    world: World, typed: str, shell: str, offered: list[str]
) -> None:
    env = world.settings.environment()
    found = offered_in_bash(env, "find", typed) if shell == "bash" else offered_by(shell, env, typed)
    assert found == offered


@pytest.mark.parametrize("name", COMMANDS)
def test_a_shell_that_completes_runs_no_stored_text(hostile: World, tmp_path: Path, name: str) -> None:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed: apt install {name}")
    with Shell(name, tmp_path / "home", hostile.settings.environment()) as shell:
        (
            shell.folder / "0"
        ).touch()  # bash completes files where nothing is offered: those here have no common beginning
        before = {*shell.folder.iterdir()}
        for start in (text[:1] for text in HOSTILE):
            assert shell.complete_and_run(f"recovery show {start}") == ["show", start]
        assert shell.complete_and_run("recovery find custom:b") == ["find", "custom:b"]
        assert shell.complete_and_run("recovery show well") == ["show", PLAIN]
        assert shell.complete_and_run("recovery show size=") == ["show", WITH_EQUALS]
        assert shell.complete_and_run("recovery find custom:size=1:x") == ["find", f"custom:{WITH_EQUALS}"]
        if name == "bash":
            assert shell.complete_and_run("recovery list --state=f") == ["list", "--state=finished"]
        assert shell.complete_and_run("recovery find @st") == ["find", "@stuck-orders"]
        assert shell.complete_and_run("recovery find state:br") == ["find", "state:broken"]
        for earlier in ("overdue ", "(idle:longer(1h)) type:order-1 "):
            typed = f"{earlier}state:br"
            quoted = f"recovery find '{typed}"
            assert shell.complete_and_run(quoted) == ["find", f"{earlier}state:broken"]
        made = {path for path in shell.folder.iterdir() if not path.name.startswith(".")} - before
        assert made == set()


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
    "recovery find label.customer:": ["label.customer:bolt"],
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
    assert offered_in_bash(env, "operation", "start", "") == [kind.value for kind in OperationKind]
    assert offered_in_bash(env, "operation", "start", "set") == ["set_idle_timeout"]
    assert offered_in_bash(env, "operation", "start", "restart") == ["restart", "restart_from"]
    assert offered_in_bash(env, "operation", "start", "set_idle_timeout", "--idle") == ["--idle-timeout"]


def test_labels_cost_a_seek_each(labelled: World) -> None:
    """However many processes have one."""
    processes = labelled.store.database["processes"]
    many = [{"_id": f"p{n}", "type": "order", "state": "finished", "labels": ["customer=acme 1"]} for n in range(500)]
    processes.insert_many(many, bypass_document_validation=True)
    query = {"labels": {"$exists": True, "$elemMatch": {"$gt": "customer=acme 1", "$lt": "customer=b"}}}
    told = processes.find(query).hint("labels").limit(1).explain()["executionStats"]
    assert (told["totalKeysExamined"], told["nReturned"]) == (1, 1)
    assert labelled.store.process_names.label_values("customer", "acme", 50) == ["acme 1", "acme 2"]
    assert labelled.store.process_names.label_names("", 2) == ["a-b", "customer"]


def test_silent_where_servers_are_away(settings: Settings) -> None:
    env = settings.model_copy(update={"mongo_uri": "mongodb://192.0.2.1:27017"}).environment()
    began = time.monotonic()
    assert (
        offered_in_bash(env, "show", "0", patience="") == offered_in_bash(env, "actor", "block", "", patience="") == []
    )
    assert time.monotonic() - began < 10
    assert offered_in_bash({**env, "RECOVERY_MONGO_URI": "nonsense"}, "show", "0", patience="") == []
