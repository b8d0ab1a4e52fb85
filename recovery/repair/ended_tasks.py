"""Repairs that end tasks: by an error, because all attempts were lost or the task's time is over, and by applying what
has ended.

Decisions of a process are applied together, if a majority has them. One that a majority does not have yet stays overdue
until it has.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence

from recovery import metrics, tracing
from recovery.engine import Applied, Ended, Outbox, Resources, ended_portions, is_of_servers, read_each
from recovery.engine.rejections import note_unrepaired
from recovery.errors import DamagedRecord
from recovery.records import ActorPreferences, Decision, ErrorInfo
from recovery.records.ids import new_pass
from recovery.repair.changed import Changed, of_each, of_records
from recovery.retry import reasons
from recovery.retry.codes import TASK_TIMEOUT, WORK_TIMEOUT
from recovery.retry.reasons import UNKNOWN, WORKER_LOST, Reason
from recovery.rules import WORKERS_PER_ATTEMPT, Finding, Repair, Rule, Surroundings

log = logging.getLogger(__name__)


class Applying:
    """Applies finished decisions by their ids."""

    def __init__(self, resources: Resources, outbox: Outbox) -> None:
        self._store = resources.store
        self._outbox, self._apply_timeout = outbox, resources.settings.apply_timeout

    def apply(self, ids: Sequence[str]) -> Changed:
        """Apply these decisions, as far as they and their tasks are there; which of them had an effect."""
        changed = Changed()
        for portion in ended_portions(self._store, ids):
            for together in _of_each_process(read_each(self._store, portion, self._on_damage)):
                changed += self._apply(together)
        self._outbox.flush()
        return changed

    def _apply(self, together: Sequence[Ended]) -> Changed:
        if len(together) > 1:
            try:
                return of_records(self._applied(together))
            except Exception as error:
                if is_of_servers(error):
                    raise
        return of_each(together, lambda one: bool(self._applied([one])), lambda one: one.decision.id, self._postpone)

    def _applied(self, together: Sequence[Ended]) -> list[str]:
        """Which of these decisions, of one process and epoch, had an effect."""
        came_of = self._outbox.apply(together)
        return [key for key, applied in came_of.items() if applied in (Applied.NOW, Applied.RESTORED)]

    def _postpone(self, decision_id: str) -> None:
        """What can't be applied now mostly can't be applied ever: it is tried more and more rarely."""
        self._store.decisions.postpone_apply(decision_id, self._apply_timeout)

    def _on_damage(self, decision_id: str, damage: DamagedRecord) -> None:
        log.error("%s: %s; repair or remove it by hand", decision_id, damage)
        metrics.DAMAGED.inc()
        self._postpone(decision_id)


class EndRepairs:
    """What ends a task, and what becomes of one that has ended."""

    def __init__(self, resources: Resources, applying: Applying) -> None:
        self._resources, self._store, self._applying = resources, resources.store, applying
        self.actions = {
            Repair.APPLY: self._apply,
            Repair.END_OVERDUE: self._end_overdue,
        }

    def _apply(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        return self._applying.apply([f.record for f in findings])

    def fail(self, rule: Rule, findings: Sequence[Finding], around: Surroundings, why: str = "") -> Changed:
        """End tasks whose attempts were lost; `why` is what a retry strategy said."""
        alike: dict[tuple[str, str | None, int], list[str]] = defaultdict(list)
        for finding in findings:
            assert finding.decision is not None
            key = finding.decision.actor, finding.decision.last_loss, finding.decision.timeouts + 1
            alike[key].append(finding.record)
        holders = holders_of(findings) if rule is Rule.WORKER_LOST else None
        judged = {f.record: f.decision for f in findings if f.decision is not None}
        failed: list[str] = []
        for (actor, last, losses), ids in alike.items():
            error = _timeout_error(rule, around.actor(actor), last, losses, why)
            failed_now = self._store.task_ends.fail(ids, error, new_pass(), holders)
            note_unrepaired(self._resources, {key: judged[key] for key in ids}, failed_now)
            failed += failed_now
            count_timeouts(actor, len(failed_now))
        over = set(failed)
        lost = (f.decision for f in findings if f.decision is not None and f.record in over)
        tracing.repaired(rule.value, tracing.repairing(lost, self._store.decisions.claims), "ended")
        self._applying.apply(failed)
        return of_records(failed)

    def _end_overdue(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        by_actor: dict[str, dict[str, Decision]] = defaultdict(dict)
        for finding in findings:
            assert finding.decision is not None
            by_actor[finding.decision.actor][finding.record] = finding.decision
        failed: list[str] = []
        for actor, judged in by_actor.items():
            limit = around.actor(actor).task_limit
            if limit is None:
                continue
            message = f"{actor} was not done within its task_timeout of {limit.seconds:g} s"
            error = ErrorInfo(
                kind="TaskTimeout", message=message, code=TASK_TIMEOUT.number, reason=UNKNOWN.name, actor=actor
            )
            ended = self._store.task_ends.out_of_time(list(judged), actor, limit, error, new_pass())
            note_unrepaired(self._resources, judged, ended)
            failed += ended
        self._applying.apply(failed)
        return of_records(failed)


def _of_each_process(ended: Iterable[Ended]) -> list[list[Ended]]:
    """These as they may be applied together; one that failed alone."""
    found: dict[object, list[Ended]] = defaultdict(list)
    for one in ended:
        found[one.decision.id if one.failed else (one.process_id, one.decision.epoch)].append(one)
    return list(found.values())


def count_timeouts(actor: str, count: int) -> None:
    """Count attempts that were lost: in all, and of their actor."""
    metrics.WORK_TIMEOUTS.inc(count)
    metrics.ACTOR_WORK_TIMEOUTS.labels(actor).inc(count)


def holders_of(findings: Sequence[Finding]) -> list[str]:
    """Return who holds the decisions that were judged."""
    return sorted({f.decision.worker for f in findings if f.decision is not None and f.decision.worker})


def _timeout_error(rule: Rule, preferences: ActorPreferences, last: str | None, lost: int, why: str) -> ErrorInfo:
    """Return the error of a task that ends without a result.

    Args:
        rule: The rule that found its last attempt to be lost.
        preferences: Its actor's.
        last: How the process of that attempt had ended, if that is known.
        lost: Attempts that were lost in a row.
        why: What a retry strategy said, if one was asked.
    """
    actor, is_gone = preferences.id, rule is Rule.WORKER_LOST or last is not None
    if why:
        message = f"lost {lost} attempts, and {why}"
        message += f"; the last one's process {last}" if last else ""
    elif preferences.restarts_lost_attempts:
        message = f"lost {preferences.max_work_timeouts} attempts (max_work_timeouts)"
        if is_gone and last is None:
            workers = WORKERS_PER_ATTEMPT * preferences.max_work_timeouts
            message = f"was lost with {workers} workers ({WORKERS_PER_ATTEMPT} for each of max_work_timeouts)"
        message += f"; the last one's process {last}" if last else ""
    else:
        off = (
            "it is not idempotent"
            if preferences.restart_after_work_timeout is None
            else "restart_after_work_timeout is off"
        )
        if is_gone:
            ended = f"'s process {last}" if last else " lost its worker"
            return _work_timeout(f"{actor}{ended}, and {off}", actor, WORKER_LOST)
        message = f"brought no result within {preferences.worker_timeout:g} s, and {off}"
    return _work_timeout(f"{actor} {message}", actor, WORKER_LOST if is_gone else reasons.WORK_TIMEOUT)


def _work_timeout(message: str, actor: str, reason: Reason) -> ErrorInfo:
    return ErrorInfo(kind="WorkTimeout", message=message, code=WORK_TIMEOUT.number, reason=reason.name, actor=actor)
