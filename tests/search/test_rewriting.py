"""Stored selections that have ages with signs: used as they were, rewritten once, and never over a change of others."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from unittest.mock import patch

import pytest

from recovery import Settings
from recovery.engine.operators.saved_searches import read_search, rewrite_signed_ages, unreadable, with_signed_ages
from recovery.operations import OperationRequest
from recovery.operations.commands import schedule_operation
from recovery.records import SavedSearch, Worker
from recovery.search import parse
from tests.cli import schemas
from tests.cli.command import ROOT, recovery
from tests.cli.terminal import Typing
from tests.world import World

OLD = "state:finished ended:<90d"
NEW = "state:finished ended:before(90d)"


@pytest.fixture
def world(emptied: Settings) -> World:
    """A cluster in which an earlier version saved a search and scheduled a collection."""
    world = World(emptied)
    world.store.saved_searches.insert(SavedSearch(id="old", text=OLD, by="ann", reason="each morning"))
    world.store.saved_searches.insert(SavedSearch(id="fine", text="type:order", by="ann"))
    schedule_operation(
        world.app.resources, "nightly", OperationRequest("collect", "overdue"), {"schedule": "0 3 * * *"}, "space"
    )
    scheduled = world.store.schedules.get("nightly")
    assert scheduled is not None and scheduled.orders is not None
    assert world.store.schedules.save(replace(scheduled, orders=replace(scheduled.orders, selection=OLD)))
    return world


def selections(world: World) -> tuple[str, str]:
    schedule = world.store.schedules.get("nightly")
    assert schedule is not None and schedule.orders is not None
    return world.store.saved_searches.texts()["old"], schedule.orders.selection


def test_both_are_rewritten_with_the_same_meaning(world: World) -> None:
    resources, now = world.app.resources, world.store.now()
    before = parse("@old", now, world.store.saved_searches.texts).tree
    assert unreadable(resources, world.store.saved_searches.all()) == {}
    assert read_search(resources, "@old type:order").text == f"({OLD}) type:order"
    assert [one.name for one in with_signed_ages(resources)] == ["@old", "schedule nightly"]
    assert [one.name for one in rewrite_signed_ages(resources)] == ["@old", "schedule nightly"]
    assert selections(world) == (NEW, NEW)
    assert parse("@old", now, world.store.saved_searches.texts).tree == before
    saved = world.store.saved_searches.all()["old"]
    assert (saved.by, saved.reason, saved.version) == ("ann", "each morning", 1)
    assert [one.what for one in world.store.audit_log.newest(2)] == ["selection rewrite"] * 2
    assert rewrite_signed_ages(resources) == with_signed_ages(resources) == []


def test_what_somebody_else_changes_meanwhile_is_left(world: World) -> None:
    resources = world.app.resources
    found = with_signed_ages(resources)
    (mine,) = (one for one in world.store.saved_searches.all().values() if one.id == "old")
    assert world.store.saved_searches.replace(mine.evolve(text="ended:>7d"))
    with patch("recovery.engine.operators.saved_searches.with_signed_ages", return_value=found):
        assert [one.name for one in rewrite_signed_ages(resources)] == ["schedule nightly"]
    assert selections(world) == ("ended:>7d", NEW)


def test_init_rewrites_them_and_says_so(world: World) -> None:
    env = world.settings.environment()
    assert schemas.read("init", recovery("init", "--json", env=env).stdout)["rewritten"] == ["@old", "schedule nightly"]
    assert selections(world) == (NEW, NEW)
    assert "rewritten" not in recovery("init", env=env).stdout


def test_they_are_left_while_a_worker_lives_that_could_not_read_them(world: World) -> None:
    """A worker of an earlier version tells no application."""
    env = world.settings.environment()
    old = Worker(id="old:1", name="old@host", host="", pid=1, pid_started=1)
    world.store.workers.beat(old, 60)
    said = recovery("init", env=env).stdout
    assert "could not read them: old@host; run `recovery init` again for @old, schedule nightly" in said
    assert selections(world) == (OLD, OLD)
    world.store.workers.beat(old.evolve(application="shop"), 60)
    assert [one.name for one in rewrite_signed_ages(world.app.resources)] == ["@old", "schedule nightly"]


def test_a_collection_says_in_words_and_dates_what_it_removes(world: World) -> None:
    env = world.settings.environment()
    shown = recovery("schedule", "show", "nightly", env=env).stdout
    assert "processes in the state finished and that ended before 20" in shown
    added = recovery(
        "schedule",
        "operation",
        "weekly",
        "collect",
        "ended:before(90d)",
        "schedule=0 3 * * 0",
        "--reason",
        "space",
        env=env,
    )
    assert "it then removes processes that ended before 20" in added.stdout and " UTC, if they are over" in added.stdout
    world.store.database["processes"].insert_one({"_id": "p", "type": "order", "state": "finished", "args": "[]"})
    ordered = recovery("operation", "start", "collect", "state:finished ended:>90d", "--reason", "space", env=env)
    assert ordered.returncode == 2 and "can be read in two ways" in ordered.stderr
    assert world.store.operations.newest(1) == []
    ordered = recovery("operation", "start", "collect", "type:order", "--reason", "space", env=env)
    assert "removes       processes of the type order, if they are over" in ordered.stdout


def test_on_a_terminal_a_collection_asks_first(world: World) -> None:
    env = {**os.environ, **world.settings.environment()}
    command = (sys.executable, "-m", "recovery", "schedule", "operation", "weekly", "collect", "ended:before(90d)")
    for answer, said, saved in (("n", "the removal was not agreed to", False), ("y", "weekly: added", True)):
        with Typing((*command, "schedule=0 3 * * 0", "--reason", "space"), env, ROOT) as terminal:
            terminal.wait_for("This removes processes that ended before 20")
            terminal.wait_for("Go on?")
            terminal.type(f"{answer}\r")
            terminal.wait_for(said)
        assert (world.store.schedules.get("weekly") is not None) is saved
    confirmed = tuple("monthly" if argument == "weekly" else argument for argument in command)
    with Typing((*confirmed, "schedule=0 3 1 * *", "--reason", "space", "--yes"), env, ROOT) as terminal:
        terminal.wait_for("monthly: added")  # nobody types an answer
