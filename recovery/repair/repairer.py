"""Carries out the repairs that findings ask for, in batches.

A repair repeats a step of the normal path, and its update repeats the condition of the finding. Records that have
changed since are left alone, so findings may be of any age.

Most findings ask for a requeue: an attempt or a message is lost, or a delayed task is due. One update queues many tasks
(`store.lifecycle.requeues`). Then their messages are pushed and their graphs get new deadlines. If this is interrupted,
the decisions are queued without a message, and MESSAGE_LOST finds them. Other repairs are in modules of their own.

Metrics: recovery_findings, recovery_repairs and recovery_requeues by rule and actor, recovery_requeue_lag_seconds.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import prometheus_client

from recovery import metrics, tracing
from recovery.engine import Outbox, Resources, push
from recovery.engine.end.fencing import withdraw_unwanted
from recovery.engine.rejections import note_unrepaired
from recovery.limits import LONGEST
from recovery.metrics.registry import AUTO, count_requeued, observe_all
from recovery.records import Decision, RepairNote
from recovery.records.ids import new_pass
from recovery.repair.changed import Action, Changed, Repaired, by_actor, of_records
from recovery.repair.damage_repairs import DamageRepairs
from recovery.repair.diagnosis import RedisLoss
from recovery.repair.ended_tasks import Applying, EndRepairs, count_timeouts, holders_of
from recovery.repair.graph_repairs import GraphRepairs
from recovery.repair.lost_attempts import LostAttempts, Sequel
from recovery.repair.process_repairs import ProcessRepairs
from recovery.repair.requeue_pace import RequeuePace
from recovery.rules import Finding, Repair, Rule, Surroundings, counts_as_loss
from recovery.store import LOSSES_WITHOUT_DELAY, Counted, Queued, batches

log = logging.getLogger(__name__)


_CONTINUES = frozenset({Repair.REQUEUE, Repair.ENQUEUE_DUE, Repair.REQUEUE_MESSAGE})
"""Repairs after which the process continues. Its graph gets its idle time from now."""


class Repairer:
    """Repairs of findings by steps of the engine. `source` names on whose behalf; each repair records it."""

    def __init__(self, resources: Resources, outbox: Outbox, source: str = AUTO) -> None:
        self._source, self._worker = source, f"{socket.gethostname()}:{os.getpid()}"
        self._resources, self._store = resources, resources.store
        self._pace = RequeuePace(resources.store.requeue_rates, resources.settings.scan_interval)
        self.redis_loss = RedisLoss(resources)
        self._repaired = Repaired()
        applying = Applying(resources, outbox)
        self._ends, self._lost = EndRepairs(resources, applying), LostAttempts(resources)
        self._actions: dict[Repair, Action] = {
            Repair.REQUEUE: self._follow_loss,
            Repair.ENQUEUE_DUE: self._enqueue_due,
            Repair.REQUEUE_MESSAGE: self._requeue_message,
            Repair.WAIT: self._wait,
            **ProcessRepairs(resources, applying).actions,
            **GraphRepairs(resources).actions,
            **self._ends.actions,
            Repair.FAIL: self._follow_loss,
            **DamageRepairs(resources, applying).actions,
        }

    def repair(self, findings: Sequence[Finding], around: Surroundings) -> Repaired:
        """Repair all findings. Return what changed.

        Raises:
            StoreError: MongoDB fails.
            BrokerError: Redis fails.
        """
        groups: dict[tuple[Rule, Repair], list[Finding]] = defaultdict(list)
        for finding in findings:
            groups[finding.rule, finding.repair].append(finding)
        self._repaired = repaired = Repaired()
        if findings:  # a loss of Redis's data must be recorded before anything is queued
            self.redis_loss.look()
        for (rule, repair), group in groups.items():
            _count(metrics.FINDINGS, rule, by_actor(group))
            by_process = Changed()
            for batch in batches(group):
                repaired_now = self._actions[repair](rule, batch, around)
                if repaired_now:
                    note = RepairNote(rule=rule.value, source=self._source, worker=self._worker)
                    self._store.graphs.note_repair(repaired_now, note, touch=repair in _CONTINUES)
                by_process += repaired_now
            if changed := by_process.total():
                repaired.changed[rule] += by_process
                for actor, count in by_actor(group, by_process).items():
                    metrics.REPAIRS.labels(rule.value, actor, self._source.partition(" ")[0]).inc(count)
                log.info(
                    "%s: %s, %d of %d (source %s); first %s: %s",
                    rule, repair, changed, len(group), self._source, group[0].record, group[0].evidence,
                )  # fmt: skip
        return repaired

    def _follow_loss(self, rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        """Requeue tasks of lost attempts now or later, or end them."""
        by_sequel: dict[Sequel, list[Finding]] = defaultdict(list)
        sequels = self._lost.judge(findings, surroundings)
        for finding in findings:
            by_sequel[sequels[finding.record]].append(finding)
        changed = Changed()
        for sequel, group in by_sequel.items():
            if sequel.delay is None:
                changed += self._ends.fail(rule, group, surroundings, sequel.why)
            elif sequel.delay:
                changed += self._retry_lost_later(rule, group, sequel.delay)
            else:
                changed += self._requeue(rule, group, surroundings)
        return changed

    def _requeue(self, rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        requeues = self._store.requeues
        changed = Changed()
        if rule is not Rule.WORKER_LOST:
            decisions = _decisions(self._in_pace(findings, surroundings))
            queued = requeues.timed_out(list(decisions), new_pass(), decisions)
            self._count_losses(rule, decisions, queued)
            return self._push_queued(rule, decisions, queued)
        # The pace does not apply to tasks of a process that died alone, because there are at most as many as one slot
        # holds.
        of_process = [finding for finding in findings if finding.decision is not None and finding.decision.last_loss]
        of_worker = [finding for finding in findings if finding not in of_process]
        # Tasks that exceed the pace stay as they are. The next scan finds them by the same worker.
        of_worker, _ = self._pace.split(of_worker, surroundings, counts_left=False)
        by_count: dict[Counted, list[Finding]] = {"timeouts": [], "workersLost": []}
        for finding in [*of_process, *of_worker]:
            decision = finding.decision
            is_counted = decision is not None and (decision.in_batch or counts_as_loss(rule, decision))
            by_count["timeouts" if is_counted else "workersLost"].append(finding)
        for counted, group in by_count.items():
            decisions, holders = _decisions(group), holders_of(group)
            queued = requeues.requeue_worker_lost(list(decisions), holders, new_pass(), counted) if group else []
            self._count_losses(rule, decisions, queued)
            changed += self._push_queued(rule, decisions, queued)
        return changed

    def _retry_lost_later(self, rule: Rule, findings: Sequence[Finding], seconds: float) -> Changed:
        decisions = _decisions(findings)
        holders = holders_of(findings) if rule is Rule.WORKER_LOST else None
        delayed = self._store.requeues.delay_lost(list(decisions), seconds, new_pass(), holders)
        note_unrepaired(self._resources, decisions, delayed)
        for actor, count in Counter(decisions[decision_id].actor for decision_id in delayed).items():
            count_timeouts(actor, count)
        for decision_id in delayed:
            message = "%s %s: attempt %d was lost (%s), %d in a row; the next in %g s"
            log.warning(
                message, decisions[decision_id].actor, decision_id, decisions[decision_id].attempts,
                decisions[decision_id].last_loss or rule.value, decisions[decision_id].timeouts + 1, seconds,
            )  # fmt: skip
        return of_records(delayed)

    def _count_losses(self, rule: Rule, decisions: Mapping[str, Decision], queued: Sequence[Queued]) -> None:
        """Count lost attempts.

        A batch counts once per worker slot that held it, because only one of its tasks had begun.
        """
        lost_decisions = [decisions[task.id] for task in queued]
        counts = Counter(decision.actor for decision in lost_decisions if counts_as_loss(rule, decision))
        counts.update({decision.worker: decision.actor for decision in lost_decisions if decision.in_batch}.values())
        for actor, count in counts.items():
            count_timeouts(actor, count)

    def _enqueue_due(self, rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        if early := {
            decision_id
            for decision_id, decision in _decisions(findings).items()
            if _is_early(decision, surroundings.now)
        }:
            self._store.task_deadlines.await_eta(sorted(early))
            findings = [finding for finding in findings if finding.record not in early]
        decisions = _decisions(self._in_pace(findings, surroundings))
        queued = self._store.requeues.enqueue_due(list(decisions), new_pass(), decisions)
        return self._push_queued(rule, decisions, queued)

    def _requeue_message(self, rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        decisions = _decisions(self._in_pace(self._of_existing_processes(findings), surroundings))
        until = max((decision.queued_at for decision in decisions.values() if decision.queued_at), default=None)
        queued = self._store.requeues.requeue_message_lost(list(decisions), until, new_pass(), decisions)
        changed = self._push_queued(rule, decisions, queued)
        _report_repeated_losses(decisions)
        return changed

    def _of_existing_processes(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Return the findings whose process exists.

        Other tasks were left by a worker that was interrupted before it checked its process. They are removed.
        """
        fresh = {
            decision_id: decision.epoch for decision_id, decision in _decisions(findings).items() if decision.fresh
        }
        if not fresh:
            return findings
        unwanted = withdraw_unwanted(self._resources, fresh)
        return [finding for finding in findings if finding.record not in unwanted]

    def _in_pace(self, findings: Sequence[Finding], surroundings: Surroundings) -> Sequence[Finding]:
        """Return the findings that the requeue rates of their actors allow now. Postpone the others."""
        allowed, later = self._pace.split(findings, surroundings)
        for postponed in later:
            self._store.task_deadlines.postpone(postponed.ids, postponed.least, postponed.most)
        self._repaired.postponed += later
        return allowed

    def _wait(self, _rule: Rule, findings: Sequence[Finding], surroundings: Surroundings) -> Changed:
        waiting: dict[bool, list[str]] = defaultdict(list)
        for decision_id, decision in _decisions(findings).items():
            waiting[surroundings.actor(decision.actor).requeue_rate > 0].append(decision_id)
        for is_paced, ids in waiting.items():
            self._store.task_deadlines.postpone_waiting(ids, paced=is_paced)
        return Changed()  # the deadlines moved, nothing was repaired

    def _push_queued(self, rule: Rule, decisions: Mapping[str, Decision], queued: Sequence[Queued]) -> Changed:
        """Push the messages of the queued tasks and count them. Return the changes by process.

        `decisions` were to be queued, by id. Those that were not queued are recorded as rejected writes.
        """
        self._repaired.wanted += len(decisions)
        self._repaired.queued += len(queued)
        if queued:
            repairing = tracing.repairing((decisions[task.id] for task in queued), self._store.decisions.claims)
            push(self._resources, queued)
            count_requeued(rule.value, [task.actor for task in queued])
            tracing.repaired(rule.value, repairing)
            _observe_lag(decisions, queued)
        note_unrepaired(self._resources, decisions, (task.id for task in queued))
        return of_records(task.id for task in queued)


def _count(metric: prometheus_client.Counter, rule: Rule, counts: Mapping[str, int]) -> None:
    for actor, count in counts.items():
        metric.labels(rule.value, actor).inc(count)


def _is_early(decision: Decision, now: datetime) -> bool:
    """Return whether a task with a past deadline is delayed until later.

    Its deadline was set for a task_timeout that no longer holds. See `TaskDeadlines.await_eta`.
    """
    return decision.eta is not None and now < decision.eta < now + timedelta(seconds=LONGEST)


def _decisions(findings: Sequence[Finding]) -> dict[str, Decision]:
    return {finding.record: finding.decision for finding in findings if finding.decision is not None}


def _report_repeated_losses(decisions: Mapping[str, Decision]) -> None:
    """Log messages that are lost repeatedly. Another program consumes them, or they kill the workers that take them."""
    repeatedly_lost = [decision for decision in decisions.values() if (decision.losses or 0) >= LOSSES_WITHOUT_DELAY]
    if repeatedly_lost:
        log.warning(
            "messages of %d tasks were lost %d times or more, first %s: does another program consume the queue %s, or "
            "does Redis evict?",
            len(repeatedly_lost), LOSSES_WITHOUT_DELAY + 1, repeatedly_lost[0].id, repeatedly_lost[0].actor,
        )  # fmt: skip


def _observe_lag(decisions: Mapping[str, Decision], queued: Sequence[Queued]) -> None:
    lags = [
        max(0.0, (task.queued_at - deadline).total_seconds())
        for task in queued
        if (deadline := decisions[task.id].recovery_time) is not None
    ]
    observe_all(metrics.LAG, lags)
