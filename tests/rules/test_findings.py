"""What rules may conclude from what workers tell: of queues, of workers that are gone, of settings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from recovery.limits import FAR_OFF
from recovery.records import ActorPreferences, ProcessTypePreferences, QueueStatistics
from recovery.rules import Finding, Repair, Rule, Surroundings
from tests.rules.surroundings import (
    CLAIM_MARGIN,
    JUST_NOW,
    LONG_AGO,
    MESSAGE_MARGIN,
    NOW,
    POLLED_TIMEOUT,
    SOON,
    TICK,
    around,
)


def polled(**queue: Any) -> dict[str, Any]:
    """Statistics of the queue `add`, which is polled."""
    return {"queue": {"polled_at": JUST_NOW, **queue}}


def test_a_finding_tells_its_process() -> None:
    for record in ("p", "p/t"):
        assert Finding(Rule.DUE, record, Repair.WAIT, "").process_id == "p"


@pytest.mark.parametrize(
    ("lost", "holder", "is_lost"),
    [
        ({"w"}, "w#1", True),
        ({"w#1"}, "w#1", True),
        ({"w#2"}, "w#1", False),
        ({"v"}, "w#1", False),
        ({"w"}, None, False),
        (set(), "w#1", False),
    ],
)
def test_a_claim_is_lost_with_its_worker_or_with_one_process_of_it(
    lost: set[str], holder: str | None, is_lost: bool
) -> None:
    assert around(lost_workers=frozenset(lost)).is_lost(holder) is is_lost


@pytest.mark.parametrize(
    ("deadline", "expected"),
    [
        (None, False),
        (LONG_AGO, True),
        (NOW + timedelta(seconds=FAR_OFF), True),
        (NOW + timedelta(seconds=FAR_OFF) + TICK, False),
        (datetime.max.replace(tzinfo=UTC), False),
    ],
)
def test_a_deadline_years_ahead_is_as_good_as_none(deadline: datetime | None, expected: bool) -> None:
    assert around().will_look(deadline) is expected


def test_settings_that_no_worker_has_told_are_the_defaults() -> None:
    known = around(actor={"worker_timeout": 7.0}, process_type={"idle_timeout": 7.0})
    assert known.actor("add").worker_timeout == known.process_type("add").idle_timeout == 7.0
    assert known.actor("other") == ActorPreferences(id="other")
    assert known.process_type("other") == ProcessTypePreferences(id="other")


@pytest.mark.parametrize(
    ("ago", "is_polled"),
    [
        (timedelta(), True),
        (POLLED_TIMEOUT - TICK, True),
        (POLLED_TIMEOUT, False),
        (-POLLED_TIMEOUT + TICK, True),
        (-POLLED_TIMEOUT, False),
    ],
)
def test_a_queue_is_polled_if_it_was_not_long_ago_by_a_clock_that_is_not_far_off(
    ago: timedelta, is_polled: bool
) -> None:
    seen = around(queue={"polled_at": NOW - ago})
    assert seen.is_polled("add") is is_polled
    assert around(queue={}).is_polled("add") is around().is_polled("add") is False


def test_a_queue_is_empty_only_if_it_was_asked_has_nothing_and_is_polled() -> None:
    assert around(depths={"add": 0}, **polled()).is_empty("add")
    assert not around(depths={"add": 1}, **polled()).is_empty("add")
    assert not around(depths={}, **polled()).is_empty("add")
    assert not around(depths={"add": 0}, queue={"polled_at": LONG_AGO}).is_empty("add")


def test_who_looks_once_believes_at_once_that_a_queue_is_empty() -> None:
    assert around(depths={"add": 0}, **polled()).empty_at("add") == NOW - MESSAGE_MARGIN
    long_ago = NOW - MESSAGE_MARGIN - TICK
    assert around(depths={"add": 0}, queue={"polled_at": long_ago}).empty_at("add") == long_ago
    assert around(depths={"add": 1}, **polled()).empty_at("add") is None
    assert around().empty_at("add") is None, "nobody has told of this queue"


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ({}, None),
        ({"found_empty_at": LONG_AGO}, LONG_AGO),
        ({"found_empty_at": NOW}, NOW),
        ({"found_empty_at": NOW + TICK}, None),
        ({"seen_empty_at": NOW - CLAIM_MARGIN}, NOW - CLAIM_MARGIN),
        ({"seen_empty_at": NOW - CLAIM_MARGIN + TICK}, None),
        ({"seen_empty_at": NOW - CLAIM_MARGIN, "found_empty_at": LONG_AGO}, NOW - CLAIM_MARGIN),
        ({"seen_empty_at": LONG_AGO, "found_empty_at": JUST_NOW}, JUST_NOW),
    ],
    ids=str,
)
def test_who_looks_again_and_again_believes_what_was_so_long_enough_ago(
    queue: dict[str, datetime], expected: datetime | None
) -> None:
    seen = around(depths={"add": 0}, looks_again=True, **polled(**queue))
    assert seen.empty_at("add") == expected
    assert seen.may_be_in_hand("add")
    assert not around(depths={"add": 0}, **polled()).may_be_in_hand("add"), (
        "who looks once can't wait for the next look"
    )
    assert not around(depths={"add": 1}, looks_again=True, **polled()).may_be_in_hand("add")


@pytest.mark.parametrize(
    ("seen_empty_at", "is_kept_anew"),
    [
        (None, True),
        (NOW + TICK, True),
        (NOW, False),
        (NOW - CLAIM_MARGIN, True),
        (NOW - CLAIM_MARGIN + TICK, False),
    ],
)
def test_that_a_queue_is_empty_is_kept_anew_once_what_was_kept_has_proven_what_it_can(
    seen_empty_at: datetime | None, is_kept_anew: bool
) -> None:
    seen = around(depths={"add": 0}, **polled(seen_empty_at=seen_empty_at))
    assert seen.seen_empty() == (["add"] if is_kept_anew else [])
    assert around(depths={"add": 1}, **polled()).seen_empty() == []


def test_each_empty_queue_is_kept() -> None:
    queues = {name: QueueStatistics(id=name, polled_at=JUST_NOW) for name in "abc"}
    assert Surroundings(NOW, queues=queues, depths={"a": 0, "b": 3, "c": 0}).seen_empty() == ["a", "c"]


MOMENT = NOW - timedelta(minutes=1)


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        ({}, None),
        ({"taken_queued_at": MOMENT}, MOMENT - MESSAGE_MARGIN),
        ({"taken_queued_at": NOW}, NOW - MESSAGE_MARGIN),
        ({"taken_queued_at": NOW + TICK}, None),
        ({"found_empty_at": MOMENT}, MOMENT - MESSAGE_MARGIN),
        ({"found_empty_at": MOMENT, "taken_queued_at": LONG_AGO}, MOMENT - MESSAGE_MARGIN),
        ({"found_empty_at": LONG_AGO, "taken_queued_at": MOMENT}, MOMENT - MESSAGE_MARGIN),
        ({"lost_before": MOMENT}, MOMENT),
        ({"lost_before": MOMENT, "taken_queued_at": MOMENT}, MOMENT),
        ({"lost_before": LONG_AGO, "taken_queued_at": MOMENT}, MOMENT - MESSAGE_MARGIN),
        ({"lost_before": NOW}, NOW),
        ({"lost_before": SOON}, None),
        ({"taken_queued_at": datetime(1, 1, 1, tzinfo=UTC)}, None),
        ({"taken_queued_at": datetime(2, 1, 1, tzinfo=UTC)}, datetime(2, 1, 1, tzinfo=UTC) - MESSAGE_MARGIN),
    ],
    ids=str,
)
def test_what_was_queued_before_the_last_proof_has_lost_its_message(
    queue: dict[str, datetime], expected: datetime | None
) -> None:
    assert around(**polled(**queue)).lost_before("add") == expected
    assert around().lost_before("add") is None


@pytest.mark.parametrize(("lost_before", "expected"), [(None, None), (MOMENT, MOMENT), (NOW, NOW), (NOW + TICK, None)])
def test_when_redis_lost_its_data_is_believed_unless_it_is_still_to_come(
    lost_before: datetime | None, expected: datetime | None
) -> None:
    assert around(**polled(lost_before=lost_before)).redis_lost_before("add") == expected
    assert around().redis_lost_before("add") is None


@pytest.mark.parametrize(("as_of", "expected"), [(None, NOW), (LONG_AGO, LONG_AGO), (SOON, NOW)])
def test_what_is_absent_is_judged_by_when_the_records_were_begun_to_be_read(
    as_of: datetime | None, expected: datetime
) -> None:
    assert around(as_of=as_of).read_at == expected
