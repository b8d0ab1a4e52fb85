"""Steps for many: what a record is to blame for stops nothing else; what a server is to blame for stops all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pymongo.errors import AutoReconnect, BulkWriteError, NotPrimaryError, OperationFailure, WriteConcernError
from redis.exceptions import ConnectionError as RedisConnectionError

from recovery.engine import isolation
from recovery.engine.isolation import batch_or_each, for_each
from recovery.errors import DamagedRecord
from recovery.log_lines import Seldom
from recovery.queue import redis_connection
from recovery.store.driver_errors import ours
from tests.counting import failed_steps

BAD = "bad"


def bulk(*codes: int, **more: object) -> BulkWriteError:
    return BulkWriteError({"writeErrors": [{"index": place, "code": code} for place, code in enumerate(codes)], **more})


OUTAGES = [
    ours(AutoReconnect("away")),
    ours(NotPrimaryError("steps down")),
    ours(OperationFailure("shuts down", 91)),
    ours(WriteConcernError("no majority yet", 64)),
    ours(bulk(91)),
    ours(bulk(121, 91)),
    ours(bulk(writeConcernErrors=[{"code": 64}])),
    redis_connection.ours(RedisConnectionError("away")),
]
DAMAGE = [
    DamagedRecord("p", "nonsense"),
    ours(OperationFailure("no valid record", 121)),
    ours(bulk(121)),
    KeyError("children"),
    TypeError("no number"),
]


class Step:
    """Fails for what is `bad`, as often as it is asked."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.asked: list[list[str]] = []

    def one(self, item: str) -> bool:
        return self.all([item]) == 1

    def all(self, items: Sequence[str]) -> int:
        self.asked.append(list(items))
        if BAD in items:
            raise self.error
        return len(items)


@pytest.mark.parametrize("error", OUTAGES, ids=repr)
def test_an_outage_is_raised_and_nothing_else_is_tried(error: Exception) -> None:
    """Swallowed, it would be told of each of a thousand records, each after its own patience."""
    alone, all_at_once, then_alone = Step(error), Step(error), Step(error)
    with pytest.raises(type(error)):
        for_each(["a", BAD, "b"], alone.one)
    assert alone.asked == [["a"], [BAD]]
    with pytest.raises(type(error)):
        batch_or_each(["a", BAD, "b"], all_at_once.all)
    assert all_at_once.asked == [["a", BAD, "b"]]

    def damaged_at_once(items: Sequence[str]) -> int:
        if len(items) > 1:
            raise DAMAGE[0]
        return then_alone.all(items)

    with pytest.raises(type(error)):
        batch_or_each(["a", BAD, "b"], damaged_at_once)
    assert then_alone.asked == [["a"], [BAD]]


@pytest.mark.parametrize("error", DAMAGE, ids=repr)
def test_what_is_damaged_is_told_and_the_others_go_on(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "_told", Seldom(isolation._told._log, isolation.TELL_EVERY))
    alone, all_at_once, before = Step(error), Step(error), failed_steps()
    assert for_each(["a", BAD, "b"], alone.one) == 2
    assert alone.asked == [["a"], [BAD], ["b"]]
    assert batch_or_each(["a", BAD, "b"], all_at_once.all) == 2
    assert all_at_once.asked == [["a", BAD, "b"], ["a"], [BAD], ["b"]]
    assert failed_steps() == before + 2
    told = f"{BAD} can't be processed: {isolation.in_a_line(error)}; "
    assert caplog.text.count(told) == 1, "and in five minutes again"
