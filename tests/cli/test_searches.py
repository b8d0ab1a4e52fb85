"""Saved searches by command, as docs/search.md shows them; and what can't be."""

from __future__ import annotations

import re
import shlex

import pytest

from recovery import Settings
from recovery.records import ProcessTypePreferences
from tests.cli import schemas
from tests.cli.command import recovery
from tests.docs.blocks import DOCS
from tests.world import World

PAGE = (DOCS / "search.md").read_text()


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)


def test_the_page_shows_what_is_said(world: World) -> None:
    section = PAGE.partition("## Searches under a name")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    said = list[str]()
    world.store.process_types.save([ProcessTypePreferences(id="order")])
    world.store.catch_up(10)
    for part in block.split("$ ")[1:]:
        line, _, wanted = part.partition("\n")
        done = recovery(*shlex.split(line)[1:], env=world.settings.environment())
        assert (done.stdout + done.stderr).strip() == wanted.strip(), line
        said.append(wanted)
    assert len(said) >= 5


def test_the_cost_is_shown_as_on_the_page(world: World) -> None:
    """Where more has ended well than is broken."""
    ended = [{"_id": f"p{n:03}", "type": "order", "state": "finished", "args": "[]"} for n in range(300)]
    world.store.database["processes"].insert_many(
        [*ended, {"_id": "q", "type": "order", "state": "broken", "args": ""}]
    )
    env = world.settings.environment()
    section = PAGE.partition("## What it costs")[2]
    command, _, wanted = re.findall(r"```console\n\$ (.*?)```", section, re.DOTALL)[0].partition("\n")
    assert recovery(*shlex.split(command)[1:], env=env).stdout.strip() == wanted.strip()
    recovery("search", "save", "late", "type:order error:TimeoutError", env=env)
    told = recovery("find", "@late", "--explain", env=env).stdout
    assert told.startswith("search      type:order error:TimeoutError\n") and told.endswith(wanted)
    found = schemas.read("find", recovery("find", "@late", "--json", env=env).stdout)
    assert (found["search"], found["expanded"]) == ("@late", "type:order error:TimeoutError")


REFUSED = {
    "find @stuk": "error: column 1: no search is saved as 'stuk'; did you mean @stuck?\n  @stuk\n  ^",
    "search save stuck state:broken": "@stuck is saved already, by ",
    "search save 'stuck orders' state:broken": "the name of a search has letters, digits",
    "search save new stat:broken": "column 1: no field is called 'stat'; did you mean state?",
    "search save new 'state:broken or @new'": "column 17: @new would be a part of itself",
    "search remove stuk": "no search is saved as 'stuk'; did you mean @stuck?",
    "operation start check @stuk --reason x": "column 1: no search is saved as 'stuk'; did you mean @stuck?",
}


def test_what_can_not_be(world: World) -> None:
    env = world.settings.environment()
    assert recovery("search", "save", "stuck", "state:running idle:longer(1h)", env=env).returncode == 0
    for line, told in REFUSED.items():
        done = recovery(*shlex.split(line), env=env)
        assert done.returncode == 2 and told in done.stderr, done
    assert world.store.saved_searches.texts() == {"stuck": "state:running idle:longer(1h)"}


def test_a_list_tells_what_can_not_be_read(world: World) -> None:
    env = world.settings.environment()
    assert recovery("search", "list", env=env).stdout == "none\n"
    world.store.database["savedSearches"].insert_one({"_id": "older", "text": "colour:red", "version": 0})
    assert (
        "colour:red (can't be read: column 1: no field is called 'colour'" in recovery("search", "list", env=env).stdout
    )
    (found,) = schemas.read("search list", recovery("search", "list", "--json", env=env).stdout)["searches"]
    assert found["error"].startswith("column 1: no field is called 'colour'") and found["saved_at"] is None
