"""The order of writes, explored in full."""

from tests.model.protocol import explore


def test_one_decision_each_and_never_stuck() -> None:
    states, ended = explore()
    assert states > 250_000, "the model has become smaller: what can't happen any more?"
    assert ended > 50_000
