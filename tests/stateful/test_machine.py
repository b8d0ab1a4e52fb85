"""Random processes, interleavings and faults, the same ones at every run. `make soak` draws others."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from recovery.settings import Settings
from tests.stateful.machine import on

EXAMPLES, STEPS = 40, 40


def test_whatever_happens_every_process_comes_to_its_right_end(lasting: Settings) -> None:
    drawn = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(on(lasting), settings=drawn)
