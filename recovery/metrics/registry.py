"""The counters and histograms. Written by every process of a worker; in prefork pools through files that
prometheus-client adds up (`PROMETHEUS_MULTIPROC_DIR`, set by `recovery.worker` before anything else is imported).

docs/metrics.md tells what each is for and when to be woken by it.
"""

from __future__ import annotations

from recovery.metrics.bounded import Counter, Histogram

PROCESSES_STARTED = Counter("recovery_processes_started", "Processes started.", ["type"])
STARTS_REFUSED = Counter("recovery_starts_refused", "Processes not started, by type and why.", ["type", "reason"])
PROCESS_TIMEOUTS = Counter("recovery_process_timeouts", "Processes that ran past their time.", ["type"])
PROCESSES_ENDED = Counter("recovery_processes_ended", "Processes ended, by type and how.", ["type", "state"])
PROCESS_SECONDS = Histogram(
    "recovery_process_seconds",
    "From a process's start to its end, by type and how it ended.",
    ["type", "state"],
    buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 1800, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400),
)
OPERATIONS = Counter("recovery_operations", "What operators did to tasks and processes, by what.", ["operation"])
ATTEMPTS = Counter("recovery_attempts", "Attempts that ended, by actor and how.", ["actor", "outcome"])
ATTEMPT_SECONDS = Histogram(
    "recovery_attempt_seconds",
    "Time that actors' functions took.",
    ["actor"],
    buckets=(0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200),
)
QUEUE_SECONDS = Histogram(
    "recovery_queue_seconds",
    "Time that tasks were queued before a worker claimed them.",
    ["actor"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200, 86_400),
)
RETRIES = Counter(
    "recovery_retries",
    "Attempts that failed and are tried again, by actor, reason and code.",
    ["actor", "reason", "code"],
)
RETRIES_REFUSED = Counter(
    "recovery_retries_refused",
    "Attempts that failed and are not tried again, by actor, reason, code and why.",
    ["actor", "reason", "code", "why"],
)
CALLS_REFUSED = Counter(
    "recovery_calls_refused",
    "Tasks given back because the worker's code does not accept their call: they wait for a newer worker. By actor.",
    ["actor"],
)
WORK_TIMEOUTS = Counter("recovery_work_timeouts", "Attempts lost: timed out or worker gone.")
ACTOR_WORK_TIMEOUTS = Counter("recovery_actor_work_timeouts", "Attempts lost, by actor.", ["actor"])
REQUEUES = Counter(
    "recovery_requeues", "Decisions queued again, by the rule that found them and actor.", ["reason", "actor"]
)
REPAIRS = Counter("recovery_repairs", "Repairs that changed something, by rule and actor.", ["rule", "actor"])
FINDINGS = Counter("recovery_findings", "What rules found, repaired or not, by rule and actor.", ["rule", "actor"])
WORKERS_LOST = Counter("recovery_workers_lost", "Workers that were found to be gone.")
DAMAGED = Counter("recovery_damaged_records", "Looks at records that can't be read.")
FAILED_STEPS = Counter("recovery_failed_steps", "Applies and repairs that failed for what a record holds.")
STALE = Counter("recovery_stale_results", "Messages and results discarded as stale, by what.", ["reason"])
REFUSED = Counter("recovery_messages_refused", "Texts in Redis that are no messages of ours, by why.", ["reason"])
PUSH_FAILURES = Counter("recovery_push_failures", "Messages that Redis did not take.")
LAG = Histogram(
    "recovery_requeue_lag_seconds",
    "From a record's deadline to its requeue.",
    buckets=(0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 3600),
)
SCAN_SECONDS = Histogram(
    "recovery_scan_seconds",
    "Time that a scan took, by scanner.",
    ["scanner"],
    buckets=(0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30),
)
SCANS = Counter("recovery_scans", "Scans done, by scanner and result.", ["scanner", "result"])
SCHEDULE_SLOTS = Counter(
    "recovery_schedule_slots", "Slots of schedules, by process type and outcome.", ["type", "outcome"]
)
BREAKER_CHANGES = Counter(
    "recovery_circuit_breaker_changes", "Openings and closings of circuit breakers.", ["server", "state"]
)
DRILL_SECONDS = Histogram(
    "recovery_drill_seconds",
    "What drills measured, by step.",
    ["step"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 8, 10, 15, 30, 60),
)
DRILL_PROBES = Counter("recovery_drill_probes", "What drills measured, by step and outcome.", ["step", "outcome"])


_STEPS = ("start", "step", "delay", "lost_claim", "killed_slot", "killed_worker")
# There from the start, at 0, where the values of the labels are known: the first one of them is an increase, which
# Prometheus can't see of a counter that has just appeared.
for _counter, _values in (
    (OPERATIONS, [("restart",), ("set running",), ("abort",)]),
    (STALE, [("message",), ("result",), ("claim lost",)]),
    (REFUSED, [("too large",), ("malformed",), ("other task",), ("expired",), ("command",)]),
    (BREAKER_CHANGES, [("mongodb", "open"), ("mongodb", "closed")]),
    (DRILL_PROBES, [(step, outcome) for step in _STEPS for outcome in ("ok", "late", "failed")]),
    (DRILL_SECONDS, [(step,) for step in _STEPS]),
    (SCANS, [(one, "cut off") for one in ("workers", "decisions", "graphs", "processes", "schedules")]),
):
    for _labels in _values:
        _counter.labels(*_labels)
