"""The order of writes, explored in full."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.model import protocol
from tests.model.protocol import canonical, explore

RULES = [
    *("START_NOT_REGISTERED graph", "START_NOT_REGISTERED decision", "MESSAGE_LOST", "WORK_TIMEOUT"),
    *("DUE", "DECISION_NOT_APPLIED", "DECISION_NOT_APPLIED, an error", "READY_NOT_QUEUED", "FINISH_NOT_RECORDED"),
]


def test_one_decision_each_and_never_stuck() -> None:
    """For five workers. One by one it was three hundred thousand states for two of them and one pass less."""
    seen, ends = explore(5)
    assert len(seen) > 12_000, "the model has become smaller: what can't happen any more?"
    assert ends["finished"] > 1_100
    assert ends["broken"] > 600


@pytest.fixture
def small() -> Iterator[None]:
    """Two passes of a task, and one lost message."""
    with patch.multiple(protocol, MAX_PASS=2, MAX_LOST=1):
        yield


@pytest.mark.usefixtures("small")
def test_states_that_count_as_one_differ_in_nothing_that_matters() -> None:
    """One by one they lead to the same."""
    one_by_one, _ = explore(2, alike=lambda world: world)
    seen, _ = explore(2)
    assert {canonical(world) for world in one_by_one} == seen.keys()
    assert len(one_by_one) > 10 * len(seen)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("rule", RULES)
def test_without_one_of_its_rules_it_is_stuck(rule: str) -> None:
    with pytest.raises(AssertionError, match="stuck"):
        explore(2, without=rule)


@pytest.mark.usefixtures("small")
def test_without_time_outs_of_tasks_it_goes_on() -> None:
    """They end what takes too long, and nothing waits for them."""
    seen, ends = explore(2, without="TASK_TIMEOUT")
    assert len(seen) > 100
    assert ends["finished"] > 10
