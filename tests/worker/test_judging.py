"""Who may call whom dead: by proof on the same host, by silence only where the judge himself was served."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from bson import DatetimeMS

from recovery.records import Worker
from recovery.scan import WorkerScanner
from recovery.settings import Settings
from recovery.worker import identity
from recovery.worker.lifeline.judging import SilenceWatch
from tests.world import World


@pytest.fixture
def me() -> Worker:
    return identity.identify("me", ())


def test_a_living_process_is_not_gone(me: Worker) -> None:
    assert not identity.is_gone(me)


def test_an_ended_process_is_gone(me: Worker) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert identity.is_gone(me.evolve(pid=child))


def test_a_zombie_is_gone(me: Worker) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert identity.is_gone(me.evolve(pid=child))
    finally:
        os.waitpid(child, 0)


def test_another_process_of_the_same_pid_does_not_hide_it(me: Worker) -> None:
    assert identity.is_gone(me.evolve(pid_started=me.pid_started - 1))


def test_of_another_host_nothing_is_known(me: Worker) -> None:
    assert not identity.is_gone(me.evolve(host="elsewhere", pid=2**22))


@pytest.mark.parametrize("error", [PermissionError, FileNotFoundError])
def test_what_is_hidden_is_not_gone(me: Worker, monkeypatch: pytest.MonkeyPatch, error: type[OSError]) -> None:
    def hidden(_pid: int) -> int:
        raise error("hidden")

    monkeypatch.setattr(identity, "started", hidden)
    assert not identity.is_gone(me)


def deadlines(world: World) -> Mapping[str, Any]:
    return world.store.heartbeat_view.look("").deadlines


class TestSilence:
    """A database that is away makes all silent at once."""

    @pytest.fixture
    def world(self, emptied: Settings, me: Worker) -> World:
        world = World(emptied)
        world.store.workers.beat(me, timeout=-1)
        return world

    def scanner(self, world: World, *, silent: Any = None) -> WorkerScanner:
        return WorkerScanner(world.app.resources, world.app.outbox, silent or (lambda: deadlines(world)))

    def test_who_was_seen_to_be_silent_is_lost(self, world: World) -> None:
        assert self.scanner(world).run_once().looked_at == 1
        assert world.store.workers.all() == []

    @pytest.mark.parametrize("deadline", [DatetimeMS(2**63 - 1), {"$gt": 1}], ids=str)
    def test_so_is_one_with_a_deadline_that_no_worker_has(self, world: World, deadline: Any) -> None:
        found, watch = world.store.database["workers"], SilenceWatch(6.0)
        found.update_one({}, {"$set": {"recoveryTime": deadline}}, bypass_document_validation=True)
        watch.look(deadlines(world), world.store.now(), 0.0)
        assert self.scanner(world, silent=lambda: watch.silent(6.0)).run_once().looked_at == 0
        assert self.scanner(world, silent=lambda: watch.silent(6.1)).run_once().looked_at == 1
        assert world.store.workers.all() == []

    def test_who_was_not_seen_to_be_is_not(self, world: World) -> None:
        assert self.scanner(world, silent=dict).run_once().looked_at == 0

    def test_who_has_beaten_since_is_not(self, world: World, me: Worker) -> None:
        seen = deadlines(world)
        world.store.workers.beat(me, timeout=-1)
        assert self.scanner(world, silent=lambda: seen).run_once().looked_at == 0

    def test_who_was_cut_off_while_he_looked_may_not_judge(self, world: World) -> None:
        answers = iter([deadlines(world), {}])
        assert self.scanner(world, silent=lambda: next(answers)).run_once().looked_at == 0
        assert len(world.store.workers.all()) == 1

    def test_who_waited_for_the_answer_may_not_judge(self, world: World) -> None:
        scanner = self.scanner(world)
        # As if the query had taken longer than any heartbeat may.
        time_limit = world.settings.model_copy(update={"heartbeat_interval": 0.0})
        scanner.resources = replace(scanner.resources, settings=time_limit)
        assert len(scanner.find()) == 0
        assert len(world.store.workers.all()) == 1
