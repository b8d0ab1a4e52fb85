"""The reasons of RFC 49 with their flags, and ours."""

from __future__ import annotations

import pytest

from recovery.errors import InputError
from recovery.retry import REASONS, reason_of
from recovery.retry.reasons import RFC_49, Stage
from tests.retry.rfc_49 import REASONS as TABLE


def test_all_of_the_rfc_with_their_flags() -> None:
    ours = {one.name: (one.allows_non_idempotent_retry, one.always_retry) for one in RFC_49}
    assert list(ours.items()) == list(TABLE.items())


def test_what_failed_before_it_was_sent_may_be_sent_again_and_what_is_in_flight_may_not() -> None:
    for reason in REASONS.values():
        if reason.stage is Stage.CLIENT_DISPATCH:
            assert reason.allows_non_idempotent_retry, reason
        if reason.stage is Stage.NETWORK_TIME:
            assert not reason.allows_non_idempotent_retry, reason
        assert reason.allows_non_idempotent_retry or not reason.always_retry, reason


def test_by_name() -> None:
    assert reason_of("KV_SYNC_RE_COMMIT_IN_PROGRESS").name == "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS"
    with pytest.raises(InputError, match="no reason is named 'NOPE'; there are: UNKNOWN, "):
        reason_of("NOPE")
