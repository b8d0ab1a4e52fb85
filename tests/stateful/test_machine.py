"""Random processes, interleavings and faults, the same ones at every run. `make soak` draws others."""

from __future__ import annotations

from hypothesis.stateful import run_state_machine_as_test

from recovery.settings import Settings
from tests.examples import examples
from tests.faults.layer import steps
from tests.stateful.machine import AT_COMMANDS, AT_SCANS, AT_WORK, on

EXAMPLES, STEPS = 12, 50


def test_whatever_happens_every_process_comes_to_its_right_end(lasting: Settings) -> None:
    drawn = examples(EXAMPLES, stateful_step_count=STEPS, derandomize=True)
    run_state_machine_as_test(on(lasting), settings=drawn)


def test_the_steps_that_faults_are_drawn_for_are_there() -> None:
    assert {*AT_WORK, *AT_SCANS, *AT_COMMANDS} <= {*steps(), "Actor.body", "Pipeline.execute"}
