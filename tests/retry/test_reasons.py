"""The reasons of RFC 49 with their flags, and ours."""

from __future__ import annotations

import pytest

from recovery.errors import InputError
from recovery.retry import REASONS, reason_of
from recovery.retry.reasons import RFC_49, Stage

# The RFC's table, as it stands there: name, non-idempotent retry, always retry.
TABLE = """
UNKNOWN false false
SOCKET_NOT_AVAILABLE true false
SERVICE_NOT_AVAILABLE true false
NODE_NOT_AVAILABLE true false
KV_NOT_MY_VBUCKET true true
KV_COLLECTION_OUTDATED true true
KV_ERROR_MAP_RETRY_INDICATED true false
KV_LOCKED true false
KV_TEMPORARY_FAILURE true false
KV_SYNC_WRITE_IN_PROGRESS true false
KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS true false
SERVICE_RESPONSE_CODE_INDICATED true false
SOCKET_CLOSED_WHILE_IN_FLIGHT false false
CIRCUIT_BREAKER_OPEN true false
QUERY_PREPARED_STATEMENT_FAILURE true false
QUERY_INDEX_NOT_FOUND true false
ANALYTICS_TEMPORARY_FAILURE true false
SEARCH_TOO_MANY_REQUESTS true false
VIEWS_TEMPORARY_FAILURE true false
VIEWS_NO_ACTIVE_PARTITION true true
"""


def test_all_of_the_rfc_with_their_flags() -> None:
    flags = {True: "true", False: "false"}
    ours = [f"{r.name} {flags[r.allows_non_idempotent_retry]} {flags[r.always_retry]}" for r in RFC_49]
    assert ours == TABLE.split("\n")[1:-1]


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
