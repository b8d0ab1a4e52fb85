"""The counters and histograms, and functions that count many events at once.

Every process of a worker writes them. In prefork pools, prometheus-client sums them from files
(`PROMETHEUS_MULTIPROC_DIR`, which `recovery.worker` sets before any other import).

The number of label sets is bounded. Process types and actors come from records, which other programs can write, and
each label set stays for the lifetime of its process.

The duration of a process is the difference between this machine's clock and the database's time of its start. Asking
the database for the time would cost a round trip per process. `recovery doctor` reports clocks that differ.

docs/metrics.md explains each metric and its alerts.
"""

from __future__ import annotations

import collections
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import prometheus_client

if TYPE_CHECKING:
    from recovery.records import Process, ProcessState

MAX_SERIES = 2_000
"""Maximum number of label sets of one metric in one process. Further ones are counted under OTHER."""
MAX_STRANGERS = 200
"""Maximum number of values of the labels NAMES in one process that are not `ours`. Further ones are counted under
OTHER."""
STRANGERS_SERIES = 1_000
"""Maximum number of label sets of one metric with such a value. The rest is reserved for ours."""
MAX_LABEL = 200
"""Maximum characters of a label. Longer values are cut."""
OTHER = "(other)"
"""The value of all labels beyond the limits. No actor or process type can have this name."""
NAMES = ("actor", "type")
"""Labels whose values come from records."""

_ours: set[str] = set()
_strangers: set[str] = set()


def ours(names: Iterable[str]) -> None:
    """Register actors and process types that this process knows by its code. They always get labels of their own."""
    _ours.update(names)
    _strangers.difference_update(_ours)


class Counter(prometheus_client.Counter):
    """A counter with a bounded number of label sets."""

    def labels(self, *values: Any, **named: Any) -> Counter:
        """Return the child for these labels, or the child for OTHER beyond the limits."""
        return super().labels(*_within(self, values, named))


class Histogram(prometheus_client.Histogram):
    """A histogram with a bounded number of label sets."""

    def labels(self, *values: Any, **named: Any) -> Histogram:
        """Return the child for these labels, or the child for OTHER beyond the limits."""
        return super().labels(*_within(self, values, named))


def _within(metric: Counter | Histogram, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, ...]:
    """Return the label values to count under: the given ones, or OTHER beyond the limits."""
    names = metric._labelnames
    given = [named[name] for name in names] if named else values
    key = tuple(str(value)[:MAX_LABEL] for value in given)
    if key in metric._metrics:
        return key
    key = tuple(_known(value) if name in NAMES else value for name, value in zip(names, key, strict=False))
    is_strange = any(name in NAMES and value not in _ours for name, value in zip(names, key, strict=False))
    if key in metric._metrics or len(metric._metrics) < (STRANGERS_SERIES if is_strange else MAX_SERIES):
        return key
    return (OTHER,) * len(key)


def _known(name: str) -> str:
    """Return the name if it is ours, or among the first MAX_STRANGERS others; otherwise OTHER."""
    if name in _ours or name in _strangers:
        return name
    if len(_strangers) >= MAX_STRANGERS:
        return OTHER
    _strangers.add(name)
    return name


PROCESSES_STARTED = Counter("recovery_processes_started", "Processes started.", ["type"])
STARTS_REFUSED = Counter("recovery_starts_refused", "Starts that were refused, by type and reason.", ["type", "reason"])
PROCESS_TIMEOUTS = Counter("recovery_process_timeouts", "Processes that exceeded their process_timeout.", ["type"])
PROCESSES_ENDED = Counter(
    "recovery_processes_ended", "Processes that ended, by type and final state.", ["type", "state"]
)
PROCESS_SECONDS = Histogram(
    "recovery_process_seconds",
    "Seconds from a process's start to its end, by type and final state.",
    ["type", "state"],
    buckets=(0.1, 0.5, 1, 5, 15, 60, 300, 1800, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400),
)
OPERATIONS = Counter("recovery_operations", "Tasks and processes that operators changed, by operation.", ["operation"])
ATTEMPTS = Counter("recovery_attempts", "Attempts that ended, by actor and outcome.", ["actor", "outcome"])
ATTEMPT_SECONDS = Histogram(
    "recovery_attempt_seconds",
    "Seconds that actors' functions took.",
    ["actor"],
    buckets=(0.01, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200),
)
QUEUE_SECONDS = Histogram(
    "recovery_queue_seconds",
    "Seconds that tasks were queued before a worker claimed them.",
    ["actor"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 1800, 7200, 86_400),
)
RETRIES = Counter(
    "recovery_retries",
    "Attempts that failed and are retried, by actor, reason and code.",
    ["actor", "reason", "code"],
)
RETRIES_REFUSED = Counter(
    "recovery_retries_refused",
    "Attempts that failed and are not retried, by actor, reason, code and cause.",
    ["actor", "reason", "code", "why"],
)
CALLS_REFUSED = Counter(
    "recovery_calls_refused",
    "Tasks given back because the worker's code does not accept their call, by actor. They wait for a newer worker.",
    ["actor"],
)
WORK_TIMEOUTS = Counter("recovery_work_timeouts", "Attempts that were lost: they timed out, or their worker is gone.")
ACTOR_WORK_TIMEOUTS = Counter("recovery_actor_work_timeouts", "Attempts that were lost, by actor.", ["actor"])
REQUEUES = Counter("recovery_requeues", "Tasks that were requeued, by rule and actor.", ["reason", "actor"])
REPAIRS = Counter(
    "recovery_repairs",
    "Repairs that changed something, by rule, actor and source.",
    ["rule", "actor", "source"],
)
FINDINGS = Counter("recovery_findings", "Findings of rules, repaired or not, by rule and actor.", ["rule", "actor"])
WORKERS_LOST = Counter("recovery_workers_lost", "Workers that were found dead.")
DAMAGED = Counter("recovery_damaged_records", "Reads of records that can't be decoded.")
FAILED_STEPS = Counter("recovery_failed_steps", "Applies and repairs that failed because of a damaged record.")
STALE = Counter("recovery_stale_results", "Messages and results that were discarded as stale, by reason.", ["reason"])
REJECTED = Counter(
    "recovery_rejected_writes", "Writes that a condition rejected, by step and condition.", ["step", "guard"]
)
REFUSED = Counter("recovery_messages_refused", "Invalid messages in Redis, by reason.", ["reason"])
PUSH_FAILURES = Counter("recovery_push_failures", "Messages that Redis did not accept.")
LAG = Histogram(
    "recovery_requeue_lag_seconds",
    "Seconds from a record's deadline to its requeue.",
    buckets=(0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 10, 30, 60, 300, 3600),
)
SCAN_SECONDS = Histogram(
    "recovery_scan_seconds",
    "Seconds that a scan took, by scanner.",
    ["scanner"],
    buckets=(0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 30),
)
SCANS = Counter("recovery_scans", "Scans, by scanner and result.", ["scanner", "result"])
SCHEDULE_SLOTS = Counter(
    "recovery_schedule_slots", "Occurrences of schedules, by process type and outcome.", ["type", "outcome"]
)
BREAKER_CHANGES = Counter(
    "recovery_circuit_breaker_changes", "Openings and closings of circuit breakers.", ["server", "state"]
)
DRILL_SECONDS = Histogram(
    "recovery_drill_seconds",
    "Seconds that drills measured, by step.",
    ["step"],
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3, 5, 8, 10, 15, 30, 60),
)
DRILL_PROBES = Counter("recovery_drill_probes", "Probes of drills, by step and outcome.", ["step", "outcome"])


_STEPS = ("start", "step", "delay", "lost_claim", "killed_slot", "killed_worker")
_REJECTING = ("claim", "finish", "apply", "interrupt", "repair")
_GUARDS = ("gone", "actor", "epoch", "pass", "state", "deadline", "version", "passing")
# Create the label sets that are known, with 0. Otherwise Prometheus would not see the first event as an increase,
# because the counter has only just appeared.
for _counter, _values in (
    (OPERATIONS, [("restart",), ("set running",), ("abort",)]),
    (STALE, [("message",), ("result",), ("claim lost",)]),
    (REJECTED, [(step, guard) for step in _REJECTING for guard in _GUARDS]),
    (REFUSED, [("too large",), ("malformed",), ("other task",), ("expired",), ("command",)]),
    (BREAKER_CHANGES, [("mongodb", "open"), ("mongodb", "closed")]),
    (DRILL_PROBES, [(step, outcome) for step in _STEPS for outcome in ("ok", "late", "failed")]),
    (DRILL_SECONDS, [(step,) for step in _STEPS]),
    (SCANS, [(scanner, "cut off") for scanner in ("workers", "decisions", "graphs", "processes", "schedules")]),
):
    for _labels in _values:
        _counter.labels(*_labels)

AUTO = "auto"
"""Source of repairs by scanners, which nobody asked for."""
_LOST_RULES = ("MESSAGE_LOST", "WORK_TIMEOUT", "WORKER_LOST")
"""Rules that find lost messages, attempts and workers."""


def begin_at_zero(actors: Iterable[str]) -> None:
    """Create the counters of losses of these actors with 0, so that Prometheus sees the first loss as an increase.

    The actors also always get labels of their own, whatever other names the records hold.
    """
    actors = list(actors)
    ours(actors)
    for actor in actors:
        ACTOR_WORK_TIMEOUTS.labels(actor)
        for rule in _LOST_RULES:
            for metric in (FINDINGS, REQUEUES):
                metric.labels(rule, actor)
            REPAIRS.labels(rule, actor, AUTO)


def count_requeued(reason: str, actors: Iterable[str]) -> None:
    """Count one requeued task for each of these actors."""
    for actor, count in collections.Counter(actors).items():
        REQUEUES.labels(reason, actor).inc(count)


def observe_all(histogram: Histogram, amounts: Sequence[float]) -> None:
    """Observe all amounts, with the same result as `observe` for each of them.

    `observe` searches the bucket of each amount and takes two locks, which would be a noticeable part of a requeue.
    """
    if amounts:
        histogram._sum.inc(sum(amounts))
    for bucket, count in collections.Counter(
        bisect_left(histogram._upper_bounds, amount) for amount in amounts
    ).items():
        histogram._buckets[bucket].inc(count)


def count_ended(state: ProcessState, processes: Iterable[Process]) -> None:
    """Count that these processes, given as they were before, ended in this state."""
    now = time.time()
    by_type: dict[str, list[Process]] = collections.defaultdict(list)
    for process in processes:
        by_type[process.type].append(process)
    for process_type, ended in by_type.items():
        starts = [process.restarted_at or process.started_at for process in ended]
        durations = [max(0.0, now - moment.timestamp()) for moment in starts if moment is not None]
        PROCESSES_ENDED.labels(process_type, state.value).inc(len(ended))
        observe_all(PROCESS_SECONDS.labels(process_type, state.value), durations)
