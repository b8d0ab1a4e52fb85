"""Repairs that end tasks whose attempts were lost or whose time is over, and that apply finished tasks.

Decisions of one process are applied together, once a majority has them. Until then a decision stays overdue.
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
    """The action that applies finished decisions by their ids."""

    def __init__(self, resources: Resources, outbox: Outbox) -> None:
        self._store = resources.store
        self._outbox, self._apply_timeout = outbox, resources.settings.apply_timeout

    def apply(self, ids: Sequence[str]) -> Changed:
        """Apply these decisions if they and their tasks exist. Return how many had an effect, by process."""
        changed = Changed()
        for portion in ended_portions(self._store, ids):
            for group in _of_each_process(read_each(self._store, portion, self._on_damage)):
                changed += self._apply(group)
        self._outbox.flush()
        return changed

    def _apply(self, group: Sequence[Ended]) -> Changed:
        if len(group) > 1:
            try:
                return of_records(self._applied(group))
            except Exception as error:
                if is_of_servers(error):
                    raise
        return of_each(
            group, lambda ended: bool(self._applied([ended])), lambda ended: ended.decision.id, self._postpone
        )

    def _applied(self, group: Sequence[Ended]) -> list[str]:
        """Apply decisions of one process and epoch. Return the ids of those that had an effect."""
        results = self._outbox.apply(group)
        return [decision_id for decision_id, applied in results.items() if applied in (Applied.NOW, Applied.RESTORED)]

    def _postpone(self, decision_id: str) -> None:
        """Postpone a decision that can't be applied, longer each time, because it usually never can be."""
        self._store.decisions.postpone_apply(decision_id, self._apply_timeout)

    def _on_damage(self, decision_id: str, damage: DamagedRecord) -> None:
        log.error("%s: %s; repair or remove it by hand", decision_id, damage)
        metrics.DAMAGED.inc()
        self._postpone(decision_id)


class EndRepairs:
    """Repairs that end tasks, and that apply ended ones."""

    def __init__(self, resources: Resources, applying: Applying) -> None:
        self._resources, self._store, self._applying = resources, resources.store, applying
        self.actions = {
            Repair.APPLY: self._apply,
            Repair.END_OVERDUE: self._end_overdue,
        }

    def _apply(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        return self._applying.apply([finding.record for finding in findings])

    def fail(self, rule: Rule, findings: Sequence[Finding], around: Surroundings, why: str = "") -> Changed:
        """End tasks whose attempts were lost, and apply the ends. Return what changed.

        Args:
            rule: The rule that found the losses.
            findings: The lost attempts.
            around: The surroundings that they were judged by.
            why: The reason that a retry strategy gave, if any.
        """
        groups: dict[tuple[str, str | None, int], list[str]] = defaultdict(list)
        for finding in findings:
            assert finding.decision is not None
            key = finding.decision.actor, finding.decision.last_loss, finding.decision.timeouts + 1
            groups[key].append(finding.record)
        holders = holders_of(findings) if rule is Rule.WORKER_LOST else None
        judged = {finding.record: finding.decision for finding in findings if finding.decision is not None}
        failed: list[str] = []
        for (actor, last_loss, losses), ids in groups.items():
            error = _timeout_error(rule, around.actor(actor), last_loss, losses, why)
            failed_now = self._store.task_ends.fail(ids, error, new_pass(), holders)
            note_unrepaired(self._resources, {decision_id: judged[decision_id] for decision_id in ids}, failed_now)
            failed += failed_now
            count_timeouts(actor, len(failed_now))
        failed_ids = set(failed)
        lost_decisions = (
            finding.decision for finding in findings if finding.decision is not None and finding.record in failed_ids
        )
        tracing.repaired(rule.value, tracing.repairing(lost_decisions, self._store.decisions.claims), "ended")
        self._applying.apply(failed)
        return of_records(failed)

    def _end_overdue(self, _rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        by_actor: dict[str, dict[str, Decision]] = defaultdict(dict)
        for finding in findings:
            assert finding.decision is not None
            by_actor[finding.decision.actor][finding.record] = finding.decision
        failed: list[str] = []
        for actor, judged in by_actor.items():
            limit = surroundings.actor(actor).task_limit
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
    """Group tasks that can be applied together, by process and epoch. A failed task is a group of its own."""
    groups: dict[object, list[Ended]] = defaultdict(list)
    for task in ended:
        groups[task.decision.id if task.failed else (task.process_id, task.decision.epoch)].append(task)
    return list(groups.values())


def count_timeouts(actor: str, count: int) -> None:
    """Count lost attempts in the total and for their actor."""
    metrics.WORK_TIMEOUTS.inc(count)
    metrics.ACTOR_WORK_TIMEOUTS.labels(actor).inc(count)


def holders_of(findings: Sequence[Finding]) -> list[str]:
    """Return the holders (worker slots) of the judged decisions, sorted."""
    return sorted(
        {finding.decision.worker for finding in findings if finding.decision is not None and finding.decision.worker}
    )


def _timeout_error(rule: Rule, preferences: ActorPreferences, last: str | None, losses: int, why: str) -> ErrorInfo:
    """Return the error of a task that ends because its attempts were lost.

    Args:
        rule: The rule that found the loss of the last attempt.
        preferences: The preferences of the actor.
        last: How the process of the last attempt ended, if that is known.
        losses: Number of attempts lost in a row.
        why: The reason that a retry strategy gave, if one was asked.
    """
    actor, is_gone = preferences.id, rule is Rule.WORKER_LOST or last is not None
    if why:
        message = f"lost {losses} attempts, and {why}"
        message += f"; the last one's process {last}" if last else ""
    elif preferences.restarts_lost_attempts:
        message = f"lost {preferences.max_work_timeouts} attempts (max_work_timeouts)"
        if is_gone and last is None:
            workers = WORKERS_PER_ATTEMPT * preferences.max_work_timeouts
            message = f"was lost with {workers} workers ({WORKERS_PER_ATTEMPT} for each of max_work_timeouts)"
        message += f"; the last one's process {last}" if last else ""
    else:
        explanation = (
            "it is not idempotent"
            if preferences.restart_after_work_timeout is None
            else "restart_after_work_timeout is off"
        )
        if is_gone:
            ended = f"'s process {last}" if last else " lost its worker"
            return _work_timeout(f"{actor}{ended}, and {explanation}", actor, WORKER_LOST)
        message = f"brought no result within {preferences.worker_timeout:g} s, and {explanation}"
    return _work_timeout(f"{actor} {message}", actor, WORKER_LOST if is_gone else reasons.WORK_TIMEOUT)


def _work_timeout(message: str, actor: str, reason: Reason) -> ErrorInfo:
    return ErrorInfo(kind="WorkTimeout", message=message, code=WORK_TIMEOUT.number, reason=reason.name, actor=actor)
