"""Retry: decides whether a failed attempt or call is retried, when, and until when. It combines two designs.

Hive's replication retry defines the classes of errors (`codes`) and the policy with its cycles (`policy`). RFC 49 of
Couchbase's SDKs defines the reasons (`reasons`), requests and strategies (`strategies`) and the orchestrator
(`orchestrator`). A `catalogue` maps an error to a code of the first and a reason of the second; `catalogues` has the
shipped ones. `explain` shows how an error would be handled. Pure: it imports no driver and asks no server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recovery.lazy_imports import exported

if TYPE_CHECKING:
    from recovery.retry.catalogue import Catalogue, Catalogues, Classified, Entry, classify
    from recovery.retry.catalogues import SHIPPED, in_use, of_class, shipped
    from recovery.retry.codes import GENERIC_ERROR, ErrorClass, ErrorCode, ErrorMap
    from recovery.retry.explain import ErrorExplanation, explain_code, explain_couchbase, explain_error, explain_reason
    from recovery.retry.orchestrator import Ruling, Verdict, controlled_backoff, maybe_retry
    from recovery.retry.policy import Backoff, Cycle, follow
    from recovery.retry.reasons import REASONS, Reason, reason_of
    from recovery.retry.strategies import BestEffort, Durable, Request, RetryAction, RetryStrategy, ServerCall

__all__ = [
    "GENERIC_ERROR",
    "REASONS",
    "SHIPPED",
    "Backoff",
    "BestEffort",
    "Catalogue",
    "Catalogues",
    "Classified",
    "Cycle",
    "Durable",
    "Entry",
    "ErrorClass",
    "ErrorCode",
    "ErrorExplanation",
    "ErrorMap",
    "Reason",
    "Request",
    "RetryAction",
    "RetryStrategy",
    "Ruling",
    "ServerCall",
    "Verdict",
    "classify",
    "controlled_backoff",
    "explain_code",
    "explain_couchbase",
    "explain_error",
    "explain_reason",
    "follow",
    "in_use",
    "maybe_retry",
    "of_class",
    "reason_of",
    "shipped",
]

__getattr__ = exported(
    __name__,
    {
        "catalogue": "Catalogue Catalogues Classified Entry classify",
        "catalogues": "SHIPPED in_use of_class shipped",
        "codes": "GENERIC_ERROR ErrorClass ErrorCode ErrorMap",
        "explain": "ErrorExplanation explain_code explain_couchbase explain_error explain_reason",
        "orchestrator": "Ruling Verdict controlled_backoff maybe_retry",
        "policy": "Backoff Cycle follow",
        "reasons": "REASONS Reason reason_of",
        "strategies": "BestEffort Durable Request RetryAction RetryStrategy ServerCall",
    },
)
