"""The dashboard Recovery: what was found, and how it was repaired, by actor."""

from __future__ import annotations

from deploy.grafana.dashboards.model import (
    ACTOR,
    TYPE,
    Board,
    Look,
    Panel,
    Query,
    Section,
    Unit,
    increase,
    largest,
    quantile,
    rate,
    top,
)

_ACTOR, _TYPE = 'actor=~"$actor"', 'type=~"$type"'
_HERE, _PROCESSES, _CLUSTER = "recovery-recovery", "recovery-processes", "recovery-cluster"

FOUND = Section(
    "Found and repaired",
    (
        Panel(
            "Requeues by reason",
            "Tasks queued again, by the rule that found them. `DUE`: a delay ended. `GIVEN_BACK`: a worker "
            "returned the task when it stopped.",
            Unit.PER_SECOND,
            (Query(rate("recovery_requeues_total", "reason", _ACTOR), "{{reason}}"),),
            to=_PROCESSES,
            look=Look.STACK,
            runbook="RecoveryAttemptsLost",
        ),
        Panel(
            "Findings by rule",
            "Findings of the rules of the failure map. The same finding is counted at each scan.",
            Unit.PER_SECOND,
            (Query(rate("recovery_findings_total", "rule", _ACTOR), "{{rule}}"),),
            to=_PROCESSES,
            look=Look.STACK,
        ),
        Panel(
            "Repairs by rule",
            "Repairs that changed something.",
            Unit.PER_SECOND,
            (Query(rate("recovery_repairs_total", "rule", _ACTOR), "{{rule}}"),),
            to=_PROCESSES,
            look=Look.STACK,
        ),
        Panel(
            "Findings by rule and actor",
            "The ten most frequent in the time range. Findings on whole processes have no actor.",
            Unit.NUMBER,
            (Query(top(increase("recovery_findings_total", "rule, actor", _ACTOR)), "{{rule}} {{actor}}"),),
            to=_PROCESSES,
            look=Look.BARS,
            width=12,
            nothing="nothing was found",
        ),
        Panel(
            "Repairs by rule and actor",
            "The ten most frequent in the time range. Repairs of whole processes have no actor.",
            Unit.NUMBER,
            (Query(top(increase("recovery_repairs_total", "rule, actor", _ACTOR)), "{{rule}} {{actor}}"),),
            to=_PROCESSES,
            look=Look.BARS,
            width=12,
            nothing="nothing was repaired",
        ),
    ),
)

LOST = Section(
    "Lost and discarded",
    (
        Panel(
            "Attempts lost, by actor",
            "Attempts that timed out or whose worker was gone: of all actors, and of the ten actors with the most. A "
            "few at each crash are normal.",
            Unit.PER_SECOND,
            (
                Query("sum(rate(recovery_work_timeouts_total[$__rate_interval]))", "all actors"),
                Query(top(rate("recovery_actor_work_timeouts_total", "actor", _ACTOR)), "{{actor}}"),
            ),
            to=_PROCESSES,
            nothing="none",
            runbook="RecoveryAttemptsLost",
        ),
        Panel(
            "Workers lost",
            "Workers that were killed or fell silent, within five minutes.",
            Unit.NUMBER,
            (Query("sum(increase(recovery_workers_lost_total[5m]))", "lost within 5 min"),),
            to=_CLUSTER,
            runbook="RecoveryWorkersLost",
        ),
        Panel(
            "Stale results, by reason",
            "Messages and results that were discarded because they were stale. Normal after crashes: it is "
            "the sign that nothing is accepted twice.",
            Unit.PER_SECOND,
            (Query(rate("recovery_stale_results_total", "reason"), "{{reason}}"),),
            to=_PROCESSES,
            nothing="none",
        ),
        Panel(
            "Slots of hung attempts, by actor",
            "Slots that were freed from attempts that do not return, in the time range, of the ten actors with "
            "the most.",
            Unit.NUMBER,
            (Query(top(f"max by (actor) (increase(recovery_hung_slots_total{{{_ACTOR}}}[$__range]))"), "{{actor}}"),),
            to=_PROCESSES,
            look=Look.BARS,
            nothing="none",
            runbook="RecoveryActorHangs",
        ),
        Panel(
            "Messages refused, by reason",
            "Messages in Redis that workers refused because they are not ours.",
            Unit.PER_SECOND,
            (Query(rate("recovery_messages_refused_total", "reason"), "{{reason}}"),),
            to=_CLUSTER,
            nothing="none",
            runbook="RecoveryStrangeMessages",
        ),
        Panel(
            "Damaged records",
            "Reads of damaged records, and recovery steps that failed because of a record's content. The log "
            "names the records.",
            Unit.PER_SECOND,
            (
                Query(rate("recovery_damaged_records_total"), "records that can't be read"),
                Query(rate("recovery_failed_steps_total"), "steps that failed"),
            ),
            to=_CLUSTER,
            runbook="RecoveryDamagedRecords",
        ),
    ),
)

RETRIES = Section(
    "Retries, markers and refused starts",
    (
        Panel(
            "Retries, by reason and code",
            "Attempts that failed and are retried later, for the ten most frequent reasons. A steady rate of one "
            "reason names the unavailable server.",
            Unit.PER_SECOND,
            (Query(top(rate("recovery_retries_total", "reason, code", _ACTOR)), "{{reason}} {{code}}"),),
            to=_PROCESSES,
            nothing="none",
        ),
        Panel(
            "Retries refused, by why",
            "Attempts that failed and are not retried. Each ended its task.",
            Unit.PER_SECOND,
            (Query(rate("recovery_retries_refused_total", "why", _ACTOR), "{{why}}"),),
            to=_PROCESSES,
            nothing="none",
            runbook="RecoveryProcessesBroken",
        ),
        Panel(
            "Markers, by process type",
            "Keys for which no process starts until an operator clears the marker, of the ten types with the most.",
            Unit.NUMBER,
            (Query(top(largest("recovery_markers", "type", _TYPE)), "{{type}}"),),
            to=_PROCESSES,
            nothing="none",
            runbook="RecoveryMarkers",
        ),
        Panel(
            "Starts refused, by process type and reason",
            "Processes that were not started because of a marker, or because an operator has disabled the type; the "
            "ten most frequent.",
            Unit.PER_SECOND,
            (Query(top(rate("recovery_starts_refused_total", "type, reason", _TYPE)), "{{type}} {{reason}}"),),
            to=_PROCESSES,
            nothing="none",
            runbook="RecoveryMarkers",
        ),
        Panel(
            "Slots of schedules",
            "Outcomes of schedules' slots. If `refused` grows, a type must not be started.",
            Unit.PER_SECOND,
            (Query(rate("recovery_schedule_slots_total", "outcome", _TYPE), "{{outcome}}"),),
            to=_PROCESSES,
            nothing="none",
            runbook="RecoveryScheduleDisabled",
        ),
        Panel(
            "Calls that workers refuse",
            "Tasks that workers gave back because their code does not accept the arguments: they wait for a newer "
            "worker. The ten actors with the most.",
            Unit.PER_SECOND,
            (Query(top(rate("recovery_calls_refused_total", "actor", _ACTOR)), "{{actor}}"),),
            to=_PROCESSES,
            nothing="none",
            runbook="RecoveryWaitsForNewerWorker",
        ),
        Panel(
            "Blocked actors",
            "How long actors have been blocked, of the ten longest.",
            Unit.SECONDS,
            (Query(top(largest("recovery_blocked_seconds", "actor", _ACTOR)), "{{actor}}"),),
            to=_PROCESSES,
            nothing="none is blocked",
            runbook="RecoveryActorStaysBlocked",
        ),
    ),
)

SCANNERS = Section(
    "Scanners",
    (
        Panel(
            "Duration of scans",
            "99 % of the scans of each scanner took no longer.",
            Unit.SECONDS,
            (Query(quantile(0.99, "recovery_scan_seconds", "scanner"), "{{scanner}}"),),
            to=_CLUSTER,
            width=12,
            runbook="RecoveryNobodyScans",
        ),
        Panel(
            "Scans",
            "`cut off` means that a server became unavailable during a scan.",
            Unit.PER_SECOND,
            (Query(rate("recovery_scans_total", "scanner, result"), "{{scanner}}: {{result}}"),),
            to=_CLUSTER,
            width=12,
            runbook="RecoveryScansCutOff",
        ),
    ),
)

BOARD = Board(
    _HERE,
    "Recovery: Recovery",
    "What the rules of the failure map found and repaired, what was lost, discarded, retried and refused.",
    (TYPE, ACTOR),
    (FOUND, LOST, RETRIES, SCANNERS),
)
