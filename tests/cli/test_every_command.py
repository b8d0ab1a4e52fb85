"""Every command at 80 columns of a terminal, in a pipe, and as JSON."""

from __future__ import annotations

import re

import pytest

from tests.cli import schemas
from tests.cli.command import ROOT, recovery
from tests.cli.every import COMMANDS, ELSEWHERE, SERVERS, all_commands
from tests.cli.terminal import CUT, WIDTH, in_terminal, too_wide

pytestmark = pytest.mark.thorough

ONCE = {
    *("start", "run", "actor forget", "actor block", "process-type disable", "process-type enable", "marker clear"),
    *(
        "schedule add",
        "schedule operation",
        "schedule remove",
        "schedule trigger",
        "restart --yes",
        "abort --yes",
        "import",
        "search remove",
        "operation forget",
    ),
    *("operation start", "operation start --idle-timeout", "operation apply", "operation pause", "operation resume"),
    "operation cancel",
}
"""They say something else the second time."""
TABLES = {
    *("broken list", "broken restart", "broken abort", "actor list", "process-type list", "schedule list"),
    *(
        "marker list",
        "marker list --cleared",
        "find",
        "list",
        "operation list",
        "operation report",
        "audit",
        "search list",
        "operation saved",
    ),
    *("operation show", "workers"),
}
"""Where a table is too wide there are blocks, without its header."""
HEADER = re.compile(r"\S+")


def test_none_is_left_out() -> None:
    tried = {name.partition(" --")[0] for name in COMMANDS}
    found = all_commands()
    assert set(found) == tried | ELSEWHERE | SERVERS
    with_json = {name for name, command in found.items() if any("--json" in p.opts for p in command.params)}
    assert with_json == set(found) - SERVERS
    assert {schemas.path(name) for name in with_json} == set(schemas.SCHEMAS.iterdir())
    page = (ROOT / "docs" / "commands.md").read_text()
    rows = re.findall(r"^\| `recovery ([a-z -]+)` \| \[[a-z.-]+\]\(schemas/([a-z.-]+)\) \|$", page, re.MULTILINE)
    assert {name: schemas.path(name).name for name in with_json} == dict(rows)


def words(text: str) -> set[str]:
    """Those without digits: ages and times are others each time; and ids, which are not."""
    found = {word.strip(".,:;()'`") for word in re.sub("[│─╭╮╰╯]", " ", text).split()}
    return {word for word in found if not re.search(r"\d", word) or len(word) >= 32} - {"ahead", "behind"}


@pytest.mark.parametrize("name", COMMANDS)
def test_in_a_terminal_in_a_pipe_and_as_json(name: str, env: dict[str, str]) -> None:
    told = in_terminal(*COMMANDS[name], env=env)
    plain = CUT.sub("", told)
    assert plain.strip() and ("Traceback" not in plain or name in ("broken show", "marker show"))
    assert too_wide(plain) == []
    done = recovery(*COMMANDS[name], env={**env, "COLUMNS": str(WIDTH)})
    assert "\x1b" not in done.stdout + done.stderr, "no colours in a pipe"
    if name not in ONCE:
        header = set(HEADER.findall(done.stdout.splitlines()[0])) if name in TABLES else set[str]()
        # What a task was called with and what it gave is cut to the line.
        missing = {word for word in words(done.stdout) - words(plain) - header if "…" not in word}
        assert not missing, plain
        check_json(name, env)


@pytest.mark.parametrize("name", sorted(ONCE))
def test_as_json(name: str, env: dict[str, str]) -> None:
    check_json(name, env)


def check_json(name: str, env: dict[str, str]) -> None:
    command = name.partition(" --")[0]
    done = recovery(*COMMANDS[name], "--json", env=env)
    assert "Traceback" not in done.stderr
    found = schemas.read(command, done.stdout)
    assert (found["version"], found["command"]) == (1, command)


@pytest.mark.parametrize("name", ["", *all_commands()])
def test_help_in_a_terminal(name: str) -> None:
    told = CUT.sub("", in_terminal(*name.split(), "--help", env={"TERM": "xterm"}))
    assert all(len(line) <= WIDTH for line in told.splitlines())
    wide = recovery(*name.split(), "--help").stdout
    # An example's line may be longer than the terminal.
    assert words(wide) - words(told) == set()
    assert "<bool>" not in told


@pytest.mark.parametrize("no_color", [False, True])
def test_the_doctors_colours(env: dict[str, str], no_color: bool) -> None:
    told = in_terminal("doctor", env={**env, **({"NO_COLOR": "1"} if no_color else {})})
    colours = {"OK": "32", "WARNING": "33", "PROBLEM": "31"}
    for level, colour in colours.items():
        coloured = re.search(rf"\x1b\[[0-9;]*{colour}m{level}", told)
        assert bool(coloured) is (level in told and not no_color)
    assert "OK" in told and "PROBLEM" in told


def test_an_error_in_a_terminal_keeps_its_words(env: dict[str, str]) -> None:
    told = CUT.sub("", in_terminal("show", "nothing", env=env))
    assert "error: no process has the id 'nothing' in database" in " ".join(told.split())
    assert all(len(line) <= WIDTH for line in told.splitlines())
