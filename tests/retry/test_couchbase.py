"""The RFC's list of response codes, and its list of idempotent operations, line by line."""

from __future__ import annotations

import pytest

from recovery.errors import InputError
from recovery.retry import Classified, ErrorCode, explain_couchbase
from recovery.retry.catalogue import UNCLASSIFIED
from recovery.retry.catalogues.couchbase import is_idempotent, response
from recovery.retry.reasons import KV_ERROR_MAP_RETRY_INDICATED, KV_NOT_MY_VBUCKET
from tests.retry.rfc_49 import RESPONSE_CODES


@pytest.mark.parametrize(("service", "status", "operation", "text", "reason"), RESPONSE_CODES)
def test_the_list(service: str, status: int, operation: str, text: str, reason: str) -> None:
    assert response(service, status, operation=operation, text=text).reason.name == reason
    said = explain_couchbase(service, status, operation=operation, text=text)
    assert said.retry == (reason != "UNKNOWN")
    assert (said.code, said.error_class) == (40000, "not retriable") if not said.retry else said.code < 40000


def test_the_error_map_is_asked_for_what_is_not_known() -> None:
    assert response("kv", 0x50, error_map_retry=True).reason.name == "KV_ERROR_MAP_RETRY_INDICATED"
    for says in (False, None):
        assert response("kv", 0x50, error_map_retry=says).reason.name == "UNKNOWN"
    assert response("kv", 0x09, operation="unlock", error_map_retry=True).reason.name == "UNKNOWN", "it is known"
    assert response("query", 1234, error_map_retry=True).reason.name == "UNKNOWN", "it is of the key-value service"


def test_the_list_of_idempotent_operations() -> None:
    of_kv = "carrier_config global_config get get_collection_id get_collection_manifest noop observe_cas observe_seqno"
    assert all(is_idempotent("kv", operation) for operation in [*of_kv.split(), "get_replica", "subdoc_lookup"])
    assert not any(is_idempotent("kv", one) for one in ("get_and_lock", "get_and_touch", "upsert", "replace"))
    for service in ("query", "analytics"):
        assert is_idempotent(service, read_only=True) and not is_idempotent(service)
    assert is_idempotent("search") and is_idempotent("view")
    assert is_idempotent("manager", method="get") and not is_idempotent("manager", method="POST")


def test_a_service_that_there_is_not() -> None:
    with pytest.raises(InputError, match="Couchbase has no service 'kvv'; there are: kv, query"):
        response("kvv", 7)


def test_an_answer_says_that_it_is_of_couchbases_catalogue() -> None:
    assert response("kv", 0x07) == Classified(
        ErrorCode(26001, "COUCHBASE_KV_NOT_MY_VBUCKET", "Couchbase: another node has this key now"),
        KV_NOT_MY_VBUCKET, "couchbase",
    )  # fmt: skip
    assert response("kv", 0x50, error_map_retry=True) == Classified(
        ErrorCode(26013, "COUCHBASE_KV_ERROR_MAP", "Couchbase: the error map indicates a retry"),
        KV_ERROR_MAP_RETRY_INDICATED, "couchbase",
    )  # fmt: skip


def test_the_error_map_is_not_asked_for_messages_of_dcp() -> None:
    assert response("kv", 0x50, operation="dcp_mutation", error_map_retry=True) == UNCLASSIFIED


def test_a_service_whose_operations_are_not_known() -> None:
    with pytest.raises(InputError) as raised:
        is_idempotent("kvv")
    services = "kv, query, analytics, search, view, manager"
    assert str(raised.value) == f"Couchbase has no service 'kvv'; there are: {services}"
