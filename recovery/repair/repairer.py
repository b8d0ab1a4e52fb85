"""Findings to compare-and-sets: what a rule says is to be done, done in batches.

A repair runs a step of the normal path again, and its update repeats the condition that the finding was made on. A
record that has moved on since is left alone, so a finding may be as old as it likes.

Most findings ask for a requeue: the attempt or the message of a task is lost, or a delayed task is due. One update
queues many tasks again (`store.lifecycle.requeues`). Then their messages are pushed, and their graphs get new
deadlines. If that is cut off, the decisions are queued and MESSAGE_LOST finds them. The other repairs have modules of
their own.

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


_GO_ON = frozenset({Repair.REQUEUE, Repair.ENQUEUE_DUE, Repair.REQUEUE_MESSAGE})
"""Repairs after which something goes on in the process, so that its graph has its idle time from now."""


class Repairer:
    """Repairs findings with the steps of the engine. `source` says on whose behalf: it is told with each repair."""

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
        """Repair all findings. Raises StoreError and BrokerError."""
        groups: dict[tuple[Rule, Repair], list[Finding]] = defaultdict(list)
        for finding in findings:
            groups[finding.rule, finding.repair].append(finding)
        self._repaired = repaired = Repaired()
        if findings:  # before anything is queued
            self.redis_loss.look()
        for (rule, repair), group in groups.items():
            _count(metrics.FINDINGS, rule, by_actor(group))
            by_process = Changed()
            for some in batches(group):
                repaired_now = self._actions[repair](rule, some, around)
                if repaired_now:
                    note = RepairNote(rule=rule.value, source=self._source, worker=self._worker)
                    self._store.graphs.note_repair(repaired_now, note, touch=repair in _GO_ON)
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

    def _follow_loss(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        """Do what follows lost attempts: another one at once or later, or the end of the task."""
        by_sequel: dict[Sequel, list[Finding]] = defaultdict(list)
        sequels = self._lost.judge(findings, around)
        for finding in findings:
            by_sequel[sequels[finding.record]].append(finding)
        changed = Changed()
        for sequel, alike in by_sequel.items():
            if sequel.delay is None:
                changed += self._ends.fail(rule, alike, around, sequel.why)
            elif sequel.delay:
                changed += self._retry_lost_later(rule, alike, sequel.delay)
            else:
                changed += self._requeue(rule, alike, around)
        return changed

    def _requeue(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        requeues = self._store.requeues
        changed = Changed()
        if rule is not Rule.WORKER_LOST:
            decisions = _decisions(self._in_pace(findings, around))
            queued = requeues.timed_out(list(decisions), new_pass(), decisions)
            self._count_losses(rule, decisions, queued)
            return self._hand_over(rule, decisions, queued)
        # A process that died alone is in no pace: it had no more tasks than one slot.
        of_process = [finding for finding in findings if finding.decision is not None and finding.decision.last_loss]
        of_worker = [finding for finding in findings if finding not in of_process]
        # What is left keeps its place: the next scan finds it with the same worker.
        of_worker, _ = self._pace.split(of_worker, around, counts_left=False)
        by_count: dict[Counted, list[Finding]] = {"timeouts": [], "workersLost": []}
        for finding in [*of_process, *of_worker]:
            decision = finding.decision
            is_counted = decision is not None and (decision.in_batch or counts_as_loss(rule, decision))
            by_count["timeouts" if is_counted else "workersLost"].append(finding)
        for counted, alike in by_count.items():
            decisions, holders = _decisions(alike), holders_of(alike)
            queued = requeues.requeue_worker_lost(list(decisions), holders, new_pass(), counted) if alike else []
            self._count_losses(rule, decisions, queued)
            changed += self._hand_over(rule, decisions, queued)
        return changed

    def _retry_lost_later(self, rule: Rule, findings: Sequence[Finding], seconds: float) -> Changed:
        decisions = _decisions(findings)
        holders = holders_of(findings) if rule is Rule.WORKER_LOST else None
        delayed = self._store.requeues.delay_lost(list(decisions), seconds, new_pass(), holders)
        note_unrepaired(self._resources, decisions, delayed)
        for actor, count in Counter(decisions[key].actor for key in delayed).items():
            count_timeouts(actor, count)
        for key in delayed:
            told = "%s %s: attempt %d was lost (%s), %d in a row; the next in %g s"
            log.warning(
                told, decisions[key].actor, key, decisions[key].attempts, decisions[key].last_loss or rule.value,
                decisions[key].timeouts + 1, seconds,
            )  # fmt: skip
        return of_records(delayed)

    def _count_losses(self, rule: Rule, decisions: Mapping[str, Decision], queued: Sequence[Queued]) -> None:
        """Count lost attempts; of a batch one for each holder, because only one of its tasks had begun."""
        lost = [decisions[one.id] for one in queued]
        counts = Counter(one.actor for one in lost if counts_as_loss(rule, one))
        counts.update({one.worker: one.actor for one in lost if one.in_batch}.values())
        for actor, count in counts.items():
            count_timeouts(actor, count)

    def _enqueue_due(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        if early := {key for key, decision in _decisions(findings).items() if _is_early(decision, around.now)}:
            self._store.task_deadlines.await_eta(sorted(early))
            findings = [finding for finding in findings if finding.record not in early]
        decisions = _decisions(self._in_pace(findings, around))
        queued = self._store.requeues.enqueue_due(list(decisions), new_pass(), decisions)
        return self._hand_over(rule, decisions, queued)

    def _requeue_message(self, rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        decisions = _decisions(self._in_pace(self._of_someone(findings), around))
        until = max((one.queued_at for one in decisions.values() if one.queued_at), default=None)
        queued = self._store.requeues.requeue_message_lost(list(decisions), until, new_pass(), decisions)
        changed = self._hand_over(rule, decisions, queued)
        _report_repeated_losses(decisions)
        return changed

    def _of_someone(self, findings: Sequence[Finding]) -> Sequence[Finding]:
        """Those whose processes are there. Whoever made the others was cut off before it looked; they are removed."""
        fresh = {key: decision.epoch for key, decision in _decisions(findings).items() if decision.fresh}
        if not fresh:
            return findings
        unwanted = withdraw_unwanted(self._resources, fresh)
        return [finding for finding in findings if finding.record not in unwanted]

    def _in_pace(self, findings: Sequence[Finding], around: Surroundings) -> Sequence[Finding]:
        """Those that their actors' pace allows now; the others are postponed."""
        now, later = self._pace.split(findings, around)
        for rest in later:
            self._store.task_deadlines.postpone(rest.ids, rest.least, rest.most)
        self._repaired.postponed += later
        return now

    def _wait(self, _rule: Rule, findings: Sequence[Finding], around: Surroundings) -> Changed:
        waiting: dict[bool, list[str]] = defaultdict(list)
        for key, decision in _decisions(findings).items():
            waiting[around.actor(decision.actor).requeue_rate > 0].append(key)
        for paced, ids in waiting.items():
            self._store.task_deadlines.postpone_waiting(ids, paced=paced)
        return Changed()  # looked at, nothing repaired

    def _hand_over(self, rule: Rule, wanted: Mapping[str, Decision], queued: Sequence[Queued]) -> Changed:
        """Push the messages of what was `queued` among the decisions that were to be; return which tasks these are."""
        self._repaired.wanted += len(wanted)
        self._repaired.queued += len(queued)
        if queued:
            repairing = tracing.repairing((wanted[one.id] for one in queued), self._store.decisions.claims)
            push(self._resources, queued)
            count_requeued(rule.value, [one.actor for one in queued])
            tracing.repaired(rule.value, repairing)
            _observe_lag(wanted, queued)
        note_unrepaired(self._resources, wanted, (one.id for one in queued))
        return of_records(one.id for one in queued)


def _count(metric: prometheus_client.Counter, rule: Rule, counts: Mapping[str, int]) -> None:
    for actor, count in counts.items():
        metric.labels(rule.value, actor).inc(count)


def _is_early(decision: Decision, now: datetime) -> bool:
    """Return whether the time of a delayed task is still to come, though its deadline is past: the deadline was for a
    task_timeout that holds no more. See `TaskDeadlines.await_eta`."""
    return decision.eta is not None and now < decision.eta < now + timedelta(seconds=LONGEST)


def _decisions(findings: Sequence[Finding]) -> dict[str, Decision]:
    return {finding.record: finding.decision for finding in findings if finding.decision is not None}


def _report_repeated_losses(lost: Mapping[str, Decision]) -> None:
    """A message that is lost again and again is no outage: another program takes it, or it ends whoever takes it."""
    often = [one for one in lost.values() if (one.losses or 0) >= LOSSES_WITHOUT_DELAY]
    if often:
        log.warning(
            "messages of %d tasks were lost %d times or more, first %s: does another program consume the queue %s, or "
            "does Redis evict?",
            len(often), LOSSES_WITHOUT_DELAY + 1, often[0].id, often[0].actor,
        )  # fmt: skip


def _observe_lag(wanted: Mapping[str, Decision], queued: Sequence[Queued]) -> None:
    lags = [
        max(0.0, (one.queued_at - deadline).total_seconds())
        for one in queued
        if (deadline := wanted[one.id].recovery_time) is not None
    ]
    observe_all(metrics.LAG, lags)
