"""The page on schedules: its table is that of the code, its application is one, its commands print what it shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from recovery import Recovery, Settings
from recovery.engine import declare_schedules
from recovery.engine.operators import schedules as operations
from recovery.engine.operators.schedules import SCHEDULE_SETTINGS, Schedules
from recovery.records.schedule import DEFAULTS, CatchUp, Overlap, SlotOutcome
from recovery.schedule import plan_of
from recovery.wording import show_duration
from tests.cli.command import recovery
from tests.docs.blocks import DOCS, blocks, module
from tests.world import World

PAGE = DOCS / "schedules.md"


def commands() -> Iterator[tuple[str, list[str]]]:
    """(command, what it prints)."""
    for block in blocks(PAGE, "console"):
        for part in block.split("$ ")[1:]:
            command, *output = part.splitlines()
            yield command, output


def rows(title: str) -> dict[str, str]:
    """{first cell: second cell} of the table under a title."""
    section = PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    found = re.findall(r"^\| (.+?) \| (.*?) \|", section, re.MULTILINE)
    return {name: value for name, value in found if name.startswith("`")}


def test_every_setting_is_told_with_its_default() -> None:
    found = {
        name: default for names, default in rows("What can be said").items() for name in re.findall("`(.+?)`", names)
    }
    assert list(found) == list(SCHEDULE_SETTINGS)
    for name, told in found.items():
        default = getattr(DEFAULTS, name.removeprefix("schedule_"), None)
        if name in ("jitter", "retry_across", "retry_across_count"):
            assert default == 0 and told in ("0", "off")
        elif name not in ("schedule", "schedule_arguments", "starts_at", "ends_at"):
            assert told.strip("`") == str(default), name


@pytest.mark.parametrize(
    ("title", "choices"), [("When the previous instance still runs", Overlap), ("After an outage", CatchUp)]
)
def test_every_choice_is_told(title: str, choices: type[Overlap | CatchUp]) -> None:
    assert [name.strip("`") for name in rows(title)] == ["overlap" if choices is Overlap else "catch_up", *choices]


def test_every_outcome_is_told() -> None:
    page = (DOCS / "metrics.md").read_text()
    (row,) = re.findall(r"^\| `recovery_schedule_slots_total` \|(.*?)\|", page, re.MULTILINE)
    assert set(re.findall("`(.+?)`", row)) == {"type", "outcome", *SlotOutcome}


@pytest.mark.parametrize(("command", "output"), [one for one in commands() if " next '" in one[0]])
def test_what_asks_no_server_prints_what_the_page_shows(command: str, output: list[str]) -> None:
    done = recovery(*shlex.split(command)[1:])
    assert (done.stdout + done.stderr).splitlines() == output


def test_the_others_print_it_in_todays_words(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for ids, times, names and the widths of columns."""
    names: dict[str, object] = {"__name__": "orders"}
    exec(module(PAGE), names)
    app = names["app"]
    assert isinstance(app, Recovery)
    served = Recovery(settings)
    served.actors, served.schedules = app.actors, app.schedules
    world = World(settings, served)
    world.store.layout.create()
    world.tell()
    declare_schedules(served.resources, served.actors, served.schedules)
    monkeypatch.setattr(operations, "who", lambda: "ada@ops-1")
    world.store.catch_up(10)
    for command, output in commands():
        if " next '" not in command:
            done = recovery(*shlex.split(command)[1:], env=settings.environment())
            assert plain(done.stdout + done.stderr) == plain("\n".join(output)), command


def plain(text: str) -> list[list[str]]:
    """Words, without what is another one each time."""
    text = re.sub(r"[0-9a-f]{32}", "ID", re.sub(r"\S+@\S+?(?=\)|\s|$)", "WHO", text))
    text = re.sub(r"\d+-\d\d-\d\d \d\d:\d\d:\d\d UTC", "TIME", text)
    text = re.sub(r", started at \d\d:\d\d:\d\d by its jitter", "", text)
    return [line.split() for line in text.splitlines()]


def test_the_days_on_which_clocks_change() -> None:
    """As many slots as the table says; test_grid has each."""
    told = rows("Days on which clocks change")
    assert told["`0 * * * *`"] == "23 that day" and "92 that day" in told["`*/15 * * * *`"]
    for text in told:
        assert plan_of({"schedule": text.strip("`")}, "the page").schedule == show_duration(3600) or "*" in text


def test_operators_commands_are_those_that_there_are() -> None:
    told = {word.strip("`").split()[0] for cell in rows("What operators do") for word in cell.split(", `")}
    assert told - {"recovery"} == {
        *("list", "show", "add", "remove", "set", "unset", "pause", "resume", "trigger", "enable", "next", "operation")
    }
    assert all(hasattr(Schedules, name) for name in told - {"recovery", "list", "show", "next", "operation"})
