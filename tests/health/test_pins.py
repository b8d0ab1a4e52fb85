"""Tasks that are pinned to a version which no live worker runs are named, with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from recovery import Recovery
from recovery.cli.process_tree import look as look_to_show
from recovery.cli.show_commands import as_dict
from recovery.cli.start_commands import _reasons
from recovery.cli.task_texts import hint
from recovery.health.model import Cause, Level
from recovery.health.process_check import look
from recovery.health.versions import judge_decisions, judge_pins
from recovery.records import Decision, DecisionState
from recovery.rules import Repair, Rule
from recovery.store.views.waiting_tasks import PinnedTasks
from tests.health.conftest import asked, worker
from tests.world import World

ABLE = worker("able").evolve(application_version="1.0")
LATER = worker("later").evolve(application_version="2.0")
COMPATIBLE = worker("compatible").evolve(application_version="1.1", compatible_with=("1.0",))
TASK = Decision(id="p/start", actor="add", state=DecisionState.QUEUED, pinned_to="1.0")
PINNED = PinnedTasks("add", "1.0", 3, "p")


@pytest.mark.parametrize("state", [DecisionState.WAITING, DecisionState.DELAYED, DecisionState.QUEUED])
def test_what_no_live_worker_may_run_says_what_to_do(state: DecisionState) -> None:
    (reason,) = judge_decisions([TASK.evolve(state=state)], [LATER]).values()
    assert reason == (
        "pinned to version 1.0, and no live worker that serves add runs it: start a worker of version 1.0, or one "
        'whose code declares itself compatible, Recovery(compatible_with=["1.0"]), or abort: `recovery abort p`'
    )


@pytest.mark.parametrize("alive", [[ABLE], [LATER, COMPATIBLE], []])
def test_what_some_worker_may_run_or_none_serves_is_not_named(alive: Any) -> None:
    assert judge_decisions([TASK], alive) == {}


def test_the_worker_has_to_serve_the_actor() -> None:
    elsewhere = ABLE.evolve(queues=("sum_up",))
    assert judge_decisions([TASK], [LATER, elsewhere])
    assert judge_pins(["order"], [PINNED], [LATER, elsewhere]).cause is Cause.PINNED_UNSERVED


def test_the_doctors_words() -> None:
    check = judge_pins(["order"], [PINNED], [LATER])
    assert (check.level, check.cause) == (Level.PROBLEM, Cause.PINNED_UNSERVED)
    assert check.found == "pinned to a version that no live worker runs: add, version 1.0 (3 tasks, one of process p)"
    assert check.advice.startswith("start a worker of version 1.0, or one whose code declares itself compatible")
    assert "abort 'pinned:1.0 state:running'" in check.advice
    assert judge_pins(["order"], [PINNED], [LATER, COMPATIBLE]).level is Level.OK
    assert judge_pins(["order"], [], [LATER]).found == "heeded for order"
    assert judge_pins([], [], [worker()]).found == "no process type is pinned"


def test_a_worker_that_knows_no_pins_is_named_while_a_type_is_pinned() -> None:
    check = judge_pins(["order"], [], [LATER, worker("older")])
    assert (check.level, check.cause) == (Level.WARNING, Cause.PINS_IGNORED)
    assert check.found == "order is pinned, and older heed no pins"
    assert check.advice.startswith("upgrade Recovery Workers there")


def test_doctor_show_check_and_a_start_that_waits(world: World) -> None:
    older = Recovery(world.app.settings, version="1.0")

    @older.process("add", versions="same")
    def add(one: int, other: int) -> int:
        return one + other

    world.store.process_types.save([add.process_type])  # type: ignore[list-item]
    process_id = older.start("add", 1, 2)
    older.registrar.flush()
    store, resources = world.store, world.app.resources
    store.workers.beat(worker().evolve(application_version="2.0"), 60)
    world.pump()
    store.catch_up(10)
    assert asked(world, "pins").cause is Cause.PINNED_UNSERVED
    assert asked(world, "calls").level is Level.OK
    reason = "pinned to version 1.0, and no live worker that serves add runs it: start a worker of version 1.0"
    (finding,) = look(resources, process_id).findings
    assert (finding.rule, finding.repair) == (Rule.NO_ACTORS, Repair.WAIT)
    assert reason in finding.evidence
    shown = as_dict(look_to_show(resources, process_id))
    assert (shown["pinned"], shown["tasks"][0]["pinned_to"]) == (True, "1.0")
    assert reason in shown["tasks"][0]["hint"]
    assert any(reason in one for one in _reasons(resources, process_id))
    # Once a worker of that version lives it is not in vain any more.
    store.workers.beat(worker("able").evolve(application_version="1.0"), 60)
    assert asked(world, "pins").level is Level.OK
    hinted = look_to_show(resources, process_id)
    told = hint(hinted.decisions["start"], {}, {}, hinted.decisions, hinted.now, hinted.pinned)
    assert told == "waits for a worker of version 1.0, to which it is pinned"
