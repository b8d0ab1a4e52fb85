"""Random processes, interleavings and faults: some the same at every run, and some by a seed that nobody knows before.

The fixed ones tell two commits apart; the others have every run look where none has looked. A seed that failed is
told, and run again by `STATEFUL_SEED`, which also makes what failed as small as it gets, in some minutes. `make soak`
draws on and on.
"""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import Phase
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

from recovery.settings import Settings
from tests.examples import examples
from tests.faults import Fault, Kind
from tests.faults.layer import steps
from tests.stateful.cluster import PROCESS
from tests.stateful.kills import node
from tests.stateful.machine import AT_COMMANDS, AT_SCANS, AT_WORK, on

pytestmark = pytest.mark.thorough

FIXED, FRESH, STEPS = 8, 4, 50
"""Examples, and the steps of each. Change the last two, and a seed that failed draws something else."""
VARIABLE = "STATEFUL_SEED"


def test_whatever_happens_every_process_comes_to_its_right_end(lasting: Settings) -> None:
    drawn = examples(FIXED, stateful_step_count=STEPS, derandomize=True)
    run_state_machine_as_test(on(lasting), settings=drawn)


def test_whatever_happens_that_was_not_tried_before(lasting: Settings) -> None:
    given = os.environ.get(VARIABLE)
    seed = random.SystemRandom().getrandbits(32) if given is None else int(given)
    print(f"Run it again: {VARIABLE}={seed} .venv/bin/python -m pytest tests/stateful/test_machine.py")
    phases = (Phase.generate,) if given is None else (Phase.generate, Phase.shrink)
    drawn = examples(FRESH, stateful_step_count=STEPS, phases=phases, database=None, report_multiple_bugs=False)
    run_state_machine_as_test(seeded(seed)(on(lasting)), settings=drawn)


def test_who_asks_late_for_another_process_replaces_what_was_started_and_broke_meanwhile(lasting: Settings) -> None:
    """No operator aborts that one, and the machine knows that nobody had to."""
    happens = on(lasting)()
    try:
        happens.first(node(1, raises="always"), PROCESS, on_the_spot=False)
        happens.work(who=1, queue=0, faults=[])
        happens.starts_another(which=0, faults=[Fault(Kind.PAUSE, 0, "Processes.insert")])
        happens.holds()
        happens.starts_another(which=0, faults=[])
        happens.work(who=1, queue=0, faults=[])
        happens.holds()
        happens.go_on(which=0)
        happens.holds()
        found = happens.cluster.database["processes"].find().sort("startedAt", 1)
        assert [process["state"] for process in found] == ["aborted", "aborted", "running"]
    finally:
        happens.teardown()


def test_the_steps_that_faults_are_drawn_for_are_there() -> None:
    assert {*AT_WORK, *AT_SCANS, *AT_COMMANDS} <= {*steps(), "Actor.body", "Pipeline.execute"}
