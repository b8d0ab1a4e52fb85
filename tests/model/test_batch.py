"""Batches of quick tasks, explored in full, and with defects planted."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from tests.model import batch
from tests.model.batch import explore

pytestmark = pytest.mark.thorough


@pytest.fixture
def small() -> Iterator[None]:
    with patch.multiple(batch, MAX_LOST=0):
        yield


def test_one_decision_each_and_no_time_out_of_what_did_not_run() -> None:
    seen = explore(1)
    assert len(seen) > 90_000, "the model has become smaller: what can't happen any more?"


def test_with_two_slots() -> None:
    with patch.multiple(batch, MAX_KILLS=1, MAX_LOST=1):
        assert len(explore(2)) > 15_000


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("defect", "found"),
    [
        ("all count", "counted, and not run"),
        ("never alone", "killed twice, and not counted"),
        ("alone in a batch", "killed twice, and not counted"),
    ],
)
def test_a_defect_is_found(defect: str, found: str) -> None:
    with pytest.raises(AssertionError, match=found):
        explore(1, defect)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("rule", ["WORKER_LOST", "MESSAGE_LOST", "DECISION_NOT_APPLIED", "FINISH_NOT_RECORDED"])
def test_without_one_of_its_rules_it_is_stuck(rule: str) -> None:
    with pytest.raises(AssertionError, match="stuck"):
        explore(1, without=rule)
