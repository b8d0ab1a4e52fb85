"""The counters and histograms, and how events of many tasks or processes are counted at once.

Written by every process of a worker; in prefork pools through files that prometheus-client adds up
(`PROMETHEUS_MULTIPROC_DIR`, set by `recovery.worker` before anything else is imported).

The number of label sets is bounded: process types and actors come from records, which anybody may have written, and
each label set stays for as long as its process lives.

How long a process took is told by this machine's clock against the database's, which its start was stamped with:
`recovery doctor` tells of clocks that are apart. To ask the database for the time would cost each end a round trip.

docs/metrics.md tells what each metric is for and when to be woken by it.
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
"""Label sets of one metric in one process. What comes after is counted under OTHER."""
MAX_STRANGERS = 200
"""Values of the labels NAMES in one process that are not `ours`. What comes after is counted under OTHER."""
STRANGERS_SERIES = 1_000
"""Label sets of one metric that may hold such a value: the rest is left to ours."""
MAX_LABEL = 200
"""Characters of a label. What is longer is cut."""
OTHER = "(other)"
"""The value of each label there. No actor or process type can have this name."""
NAMES = ("actor", "type")
"""Labels whose values come from records."""

_ours: set[str] = set()
_strangers: set[str] = set()


def ours(names: Iterable[str]) -> None:
    """Have these actors and process types, which the process knows by its code, always told by their names."""
    _ours.update(names)
    _strangers.difference_update(_ours)


class Counter(prometheus_client.Counter):
    """A counter."""

    def labels(self, *values: Any, **named: Any) -> Counter:
        """The child for these labels, or for what is counted together."""
        return super().labels(*_within(self, values, named))


class Histogram(prometheus_client.Histogram):
    """A histogram."""

    def labels(self, *values: Any, **named: Any) -> Histogram:
        """The child for these labels, or for what is counted together."""
        return super().labels(*_within(self, values, named))


def _within(metric: Counter | Histogram, values: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, ...]:
    """The labels to count under instead of these."""
    names = metric._labelnames
    given = [named[name] for name in names] if named else values
    key = tuple(str(value)[:MAX_LABEL] for value in given)
    if key in metric._metrics:
        return key
    key = tuple(_known(value) if name in NAMES else value for name, value in zip(names, key, strict=False))
    stranger = any(name in NAMES and value not in _ours for name, value in zip(names, key, strict=False))
    if key in metric._metrics or len(metric._metrics) < (STRANGERS_SERIES if stranger else MAX_SERIES):
        return key
    return (OTHER,) * len(key)


def _known(name: str) -> str:
    """A name that is ours, or one of the first others; OTHER for the rest."""
    if name in _ours or name in _strangers:
        return name
    if len(_strangers) >= MAX_STRANGERS:
        return OTHER
    _strangers.add(name)
    return name


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
REPAIRS = Counter(
    "recovery_repairs",
    "Repairs that changed something, by rule, actor and source.",
    ["rule", "actor", "source"],
)
FINDINGS = Counter("recovery_findings", "What rules found, repaired or not, by rule and actor.", ["rule", "actor"])
WORKERS_LOST = Counter("recovery_workers_lost", "Workers that were found to be gone.")
DAMAGED = Counter("recovery_damaged_records", "Looks at records that can't be read.")
FAILED_STEPS = Counter("recovery_failed_steps", "Applies and repairs that failed for what a record holds.")
STALE = Counter("recovery_stale_results", "Messages and results discarded as stale, by what.", ["reason"])
REJECTED = Counter(
    "recovery_rejected_writes", "Writes that a condition rejected, by step and by what it was.", ["step", "guard"]
)
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
_REJECTING = ("claim", "finish", "apply", "interrupt", "repair")
_GUARDS = ("gone", "actor", "epoch", "pass", "state", "deadline", "version", "passing")
# There from the start, at 0, where the values of the labels are known: the first one of them is an increase, which
# Prometheus can't see of a counter that has just appeared.
for _counter, _values in (
    (OPERATIONS, [("restart",), ("set running",), ("abort",)]),
    (STALE, [("message",), ("result",), ("claim lost",)]),
    (REJECTED, [(step, guard) for step in _REJECTING for guard in _GUARDS]),
    (REFUSED, [("too large",), ("malformed",), ("other task",), ("expired",), ("command",)]),
    (BREAKER_CHANGES, [("mongodb", "open"), ("mongodb", "closed")]),
    (DRILL_PROBES, [(step, outcome) for step in _STEPS for outcome in ("ok", "late", "failed")]),
    (DRILL_SECONDS, [(step,) for step in _STEPS]),
    (SCANS, [(one, "cut off") for one in ("workers", "decisions", "graphs", "processes", "schedules")]),
):
    for _labels in _values:
        _counter.labels(*_labels)

AUTO = "auto"
"""Source of repairs that nobody asked for: those of scanners."""
_LOST_RULES = ("MESSAGE_LOST", "WORK_TIMEOUT", "WORKER_LOST")
"""Rules that find lost messages, attempts and workers."""


def begin_at_zero(actors: Iterable[str]) -> None:
    """Have at 0, from the start, what these actors may lose: else the first loss makes the series, and Prometheus can't
    see that it grew. And have each of them told by its name, whatever other names there are in records."""
    actors = list(actors)
    ours(actors)
    for actor in actors:
        ACTOR_WORK_TIMEOUTS.labels(actor)
        for rule in _LOST_RULES:
            for metric in (FINDINGS, REQUEUES):
                metric.labels(rule, actor)
            REPAIRS.labels(rule, actor, AUTO)


def count_requeued(reason: str, actors: Iterable[str]) -> None:
    """Count that a task of each of these actors was queued again."""
    for actor, count in collections.Counter(actors).items():
        REQUEUES.labels(reason, actor).inc(count)


def observe_all(histogram: Histogram, amounts: Sequence[float]) -> None:
    """What it is to `observe` each of them: prometheus-client looks for the bucket of each anew, under two locks, which
    was a twentieth of what a requeue takes."""
    if amounts:
        histogram._sum.inc(sum(amounts))
    for place, count in collections.Counter(bisect_left(histogram._upper_bounds, one) for one in amounts).items():
        histogram._buckets[place].inc(count)


def count_ended(state: ProcessState, processes: Iterable[Process]) -> None:
    """Count that these processes, as they were before, ended in this state."""
    now = time.time()
    by_type: dict[str, list[Process]] = collections.defaultdict(list)
    for process in processes:
        by_type[process.type].append(process)
    for process_type, alike in by_type.items():
        began = [one.restarted_at or one.started_at for one in alike]
        took = [max(0.0, now - moment.timestamp()) for moment in began if moment is not None]
        PROCESSES_ENDED.labels(process_type, state.value).inc(len(alike))
        observe_all(PROCESS_SECONDS.labels(process_type, state.value), took)
