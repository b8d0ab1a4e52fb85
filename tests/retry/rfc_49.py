"""Tables of Couchbase's SDK RFC 49, as they stand there. Nothing here knows how errors are classified."""

from __future__ import annotations

REASONS = {
    "UNKNOWN": (False, False),
    "SOCKET_NOT_AVAILABLE": (True, False),
    "SERVICE_NOT_AVAILABLE": (True, False),
    "NODE_NOT_AVAILABLE": (True, False),
    "KV_NOT_MY_VBUCKET": (True, True),
    "KV_COLLECTION_OUTDATED": (True, True),
    "KV_ERROR_MAP_RETRY_INDICATED": (True, False),
    "KV_LOCKED": (True, False),
    "KV_TEMPORARY_FAILURE": (True, False),
    "KV_SYNC_WRITE_IN_PROGRESS": (True, False),
    "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS": (True, False),
    "SERVICE_RESPONSE_CODE_INDICATED": (True, False),
    "SOCKET_CLOSED_WHILE_IN_FLIGHT": (False, False),
    "CIRCUIT_BREAKER_OPEN": (True, False),
    "QUERY_PREPARED_STATEMENT_FAILURE": (True, False),
    "QUERY_INDEX_NOT_FOUND": (True, False),
    "ANALYTICS_TEMPORARY_FAILURE": (True, False),
    "SEARCH_TOO_MANY_REQUESTS": (True, False),
    "VIEWS_TEMPORARY_FAILURE": (True, False),
    "VIEWS_NO_ACTIVE_PARTITION": (True, True),
}
"""The table under 'RetryReason', in its order: {name: (non-idempotent retry, always retry)}."""

RESPONSE_CODES = [
    ("kv", 0x07, "", "", "KV_NOT_MY_VBUCKET"),
    ("kv", 0x88, "get", "", "KV_COLLECTION_OUTDATED"),
    ("kv", 0x88, "get_collection_id", "", "UNKNOWN"),
    ("kv", 0x09, "upsert", "", "KV_LOCKED"),
    ("kv", 0x09, "unlock", "", "UNKNOWN"),
    ("kv", 0x86, "", "", "KV_TEMPORARY_FAILURE"),
    ("kv", 0xA2, "", "", "KV_SYNC_WRITE_IN_PROGRESS"),
    ("kv", 0xA4, "", "", "KV_SYNC_WRITE_RE_COMMIT_IN_PROGRESS"),
    ("kv", 0x07, "dcp_open", "", "UNKNOWN"),
    ("kv", 0x86, "dcp_mutation", "", "UNKNOWN"),
    ("kv", 0x01, "", "", "UNKNOWN"),
    *(("query", code, "", "", "QUERY_PREPARED_STATEMENT_FAILURE") for code in (4040, 4050, 4070)),
    ("query", 5000, "", "err: queryport.indexNotFound", "QUERY_INDEX_NOT_FOUND"),
    ("query", 5000, "", "something else", "UNKNOWN"),
    ("query", 4060, "", "", "UNKNOWN"),
    *(("analytics", code, "", "", "ANALYTICS_TEMPORARY_FAILURE") for code in (23000, 23003, 23007)),
    ("analytics", 23001, "", "", "UNKNOWN"),
    ("search", 429, "", "", "SEARCH_TOO_MANY_REQUESTS"),
    ("search", 500, "", "", "UNKNOWN"),
    ("view", 302, "", "", "VIEWS_NO_ACTIVE_PARTITION"),
    *(
        ("view", status, "", "", "VIEWS_TEMPORARY_FAILURE")
        for status in (300, 301, 303, 307, 401, 408, 409, 412, 416, 417, 501, 502, 503, 504)
    ),
    ("view", 404, "", '{"error":"x","reason":"missing"}', "VIEWS_TEMPORARY_FAILURE"),
    ("view", 404, "", '{"reason":"deleted"}', "UNKNOWN"),
    ("view", 500, "", "", "VIEWS_TEMPORARY_FAILURE"),
    ("view", 500, "", '{"error":"{not_found, missing_named_view}"}', "UNKNOWN"),
    ("view", 500, "", '{"error":"badarg"}', "UNKNOWN"),
    ("view", 500, "", '{"reason":"{not_found, missing_named_view}"}', "VIEWS_TEMPORARY_FAILURE"),
]
"""The response codes: (service, code, operation, text, reason); UNKNOWN is not retried."""
