"""Prometheus metrics: what is counted (`registry`) and how it is served (`exporter`)."""

from recovery.metrics.registry import (
    ACTOR_WORK_TIMEOUTS,
    ATTEMPT_SECONDS,
    ATTEMPTS,
    DAMAGED,
    FINDINGS,
    LAG,
    PROCESS_TIMEOUTS,
    PROCESSES_ENDED,
    PROCESSES_STARTED,
    PUSH_FAILURES,
    REPAIRS,
    REQUEUES,
    SCAN_SECONDS,
    SCANS,
    STALE,
    WORK_TIMEOUTS,
)

__all__ = [
    "ACTOR_WORK_TIMEOUTS",
    "ATTEMPTS",
    "ATTEMPT_SECONDS",
    "DAMAGED",
    "FINDINGS",
    "LAG",
    "PROCESSES_ENDED",
    "PROCESSES_STARTED",
    "PROCESS_TIMEOUTS",
    "PUSH_FAILURES",
    "REPAIRS",
    "REQUEUES",
    "SCANS",
    "SCAN_SECONDS",
    "STALE",
    "WORK_TIMEOUTS",
]
