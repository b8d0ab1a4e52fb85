"""`recovery marker` and `process-type disable` as docs/markers.md shows them; and what can't be."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from recovery import Settings
from recovery.records import ProcessState
from tests.cli import schemas
from tests.cli.command import recovery
from tests.cli.terminal import in_terminal
from tests.docs.blocks import DOCS, blocks
from tests.world import World

PAGE = DOCS / "markers.md"
VARYING = (
    (re.compile(r"\b[0-9a-f]{32}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"), "TIME"),
    (re.compile(r"[\w.-]+@[\w.-]+"), "WHO"),
    (re.compile(r" +"), " "),
)


def plain(text: str) -> str:
    """Without what is another each time."""
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "copies.py").write_text(blocks(PAGE, "python")[0])
    return tmp_path


@pytest.fixture
def world(emptied: Settings, folder: Path) -> World:
    """With the page's application, one of whose processes has broken."""
    app = runpy.run_path(str(folder / "copies.py"))["app"]
    made = World(emptied)
    made.app.actors = app.actors
    made.tell()
    process_id = made.start("replicate", "sales")
    assert made.bring_to_end(process_id).state is ProcessState.BROKEN
    made.store.catch_up(10)
    return made


@pytest.fixture
def env(world: World) -> dict[str, str]:
    return {**world.settings.environment(), "RECOVERY_APP": "copies:app"}


@pytest.mark.usefixtures("world")
def test_the_page_shows_what_is_said(env: dict[str, str], folder: Path) -> None:
    shown = 0
    for block in blocks(PAGE, "console"):
        for part in block.split("$ ")[1:]:
            line, _, wanted = part.partition("\n")
            done = recovery(*shlex.split(line)[1:], env=env, cwd=folder)
            said = done.stdout + done.stderr
            assert plain(said) == plain(wanted), f"{line}:\n{said}"
            shown += 1
    assert shown >= 8


def test_it_is_told_wherever_one_looks(env: dict[str, str]) -> None:
    assert re.search(r"not started +replicate: 1 marker, `recovery marker list`", recovery("status", env=env).stdout)
    assert schemas.read("status", recovery("status", "--json", env=env).stdout)["markers"] == {"replicate": 1}
    doctor = recovery("doctor", env=env).stdout
    assert re.search(r"WARNING +markers +not started: 1 marker of replicate \(1\)", doctor)
    recovery("process-type", "disable", "replicate", "--reason", "a test", env=env)
    assert schemas.read("status", recovery("status", "--json", env=env).stdout)["disabled"] == ["replicate"]
    assert "disabled: replicate" in recovery("doctor", env=env).stdout
    assert re.search(r"disabled since .* by .*: a test", recovery("process-type", "show", "replicate", env=env).stdout)


REFUSED = {
    "marker show replicate/sale": "no marker is named 'replicate/sale'; did you mean 'replicate/sales'?",
    "marker clear replicate/sale --reason x": "did you mean 'replicate/sales'?",
    "marker clear replicate/sales": "reason='': say in a few words why",
    "marker clear replicate/sales --reason ''": "say in a few words why",
    "process-type disable replicate": "say in a few words why",
    "process-type disable replicat --reason x": "did you mean 'replicate'?",
    "process-type enable replicat": "did you mean 'replicate'?",
    "start replicate sales": "there is a marker replicate/sales, since ",
}


def test_what_can_not_be(world: World, env: dict[str, str], folder: Path) -> None:
    for line, told in REFUSED.items():
        done = recovery(*shlex.split(line), env=env, cwd=folder)
        assert done.returncode == 2 and told in done.stderr, done
    assert [marker.id for marker in world.store.markers.all()] == ["replicate/sales"]


def test_a_name_with_spaces_is_cleared_as_it_is_shown(world: World, env: dict[str, str], folder: Path) -> None:
    process_id = world.start("replicate", "big sales; 'q'")
    assert world.bring_to_end(process_id).state is ProcessState.BROKEN
    done = recovery("start", "replicate", "big sales; 'q'", env=env, cwd=folder)
    found = re.search(r"`recovery (marker clear .*) --reason \.\.\.`", done.stderr)
    assert found is not None, done.stderr
    assert recovery(*shlex.split(found[1]), "--reason", "seen to", env=env).returncode == 0
    assert [marker.id for marker in world.store.markers.all()] == ["replicate/sales"]


def test_a_shell_completes_names(env: dict[str, str]) -> None:
    words = {"_RECOVERY_COMPLETE": "complete_bash", "COMP_WORDS": "recovery marker clear rep", "COMP_CWORD": "3"}
    assert recovery(env={**env, **words}).stdout.split() == ["replicate/sales"]


def test_in_a_terminal(env: dict[str, str]) -> None:
    assert "replicate/sales" in in_terminal("marker", "list", env=env)
