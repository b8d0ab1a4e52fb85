"""Recovery: what was found, what was done about it, and of which actors."""

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
            "Tasks queued again, by the rule that found them. `DUE` is a delay that ended, `GIVEN_BACK` what a worker "
            "handed back at its end.",
            Unit.PER_SECOND,
            (Query(rate("recovery_requeues_total", "reason", _ACTOR), "{{reason}}"),),
            to=_PROCESSES,
            look=Look.STACK,
            runbook="RecoveryAttemptsLost",
        ),
        Panel(
            "Findings by rule",
            "What the rules of the failure map found. The same thing is counted at each look.",
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
            "In the time that is shown, the ten most. What is of a whole process has no actor.",
            Unit.NUMBER,
            (Query(top(increase("recovery_findings_total", "rule, actor", _ACTOR)), "{{rule}} {{actor}}"),),
            to=_PROCESSES,
            look=Look.BARS,
            width=12,
            nothing="nothing was found",
        ),
        Panel(
            "Repairs by rule and actor",
            "In the time that is shown, the ten most. What is of a whole process has no actor.",
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
            "Attempts that timed out or whose worker was gone: of all actors together, and of the ten with the most. A "
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
            "Messages and results that were discarded since they did not count any more. Normal after crashes: it is "
            "the sign that nothing is accepted twice.",
            Unit.PER_SECOND,
            (Query(rate("recovery_stale_results_total", "reason"), "{{reason}}"),),
            to=_PROCESSES,
            nothing="none",
        ),
        Panel(
            "Slots of hung attempts, by actor",
            "Slots that were freed of attempts that do not return, in the time that is shown, of the ten actors with "
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
            "What workers took from Redis that is no message of ours.",
            Unit.PER_SECOND,
            (Query(rate("recovery_messages_refused_total", "reason"), "{{reason}}"),),
            to=_CLUSTER,
            nothing="none",
            runbook="RecoveryStrangeMessages",
        ),
        Panel(
            "Damaged records",
            "Looks at records that can't be read, and steps of recovery that failed for what a record holds. The log "
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
            "Attempts that failed and are tried again later, of the ten most frequent. A steady rate of one reason "
            "names the server that is away.",
            Unit.PER_SECOND,
            (Query(top(rate("recovery_retries_total", "reason, code", _ACTOR)), "{{reason}} {{code}}"),),
            to=_PROCESSES,
            nothing="none",
        ),
        Panel(
            "Retries refused, by why",
            "Attempts that failed and are not tried again. Each ended its task.",
            Unit.PER_SECOND,
            (Query(rate("recovery_retries_refused_total", "why", _ACTOR), "{{why}}"),),
            to=_PROCESSES,
            nothing="none",
            runbook="RecoveryProcessesBroken",
        ),
        Panel(
            "Markers, by process type",
            "Keys of which no process is started until an operator clears the marker, of the ten types with the most.",
            Unit.NUMBER,
            (Query(top(largest("recovery_markers", "type", _TYPE)), "{{type}}"),),
            to=_PROCESSES,
            nothing="none",
            runbook="RecoveryMarkers",
        ),
        Panel(
            "Starts refused, by process type and reason",
            "Processes that were not started, since there is a marker or an operator has disabled the type; of the "
            "ten most frequent.",
            Unit.PER_SECOND,
            (Query(top(rate("recovery_starts_refused_total", "type, reason", _TYPE)), "{{type}} {{reason}}"),),
            to=_PROCESSES,
            nothing="none",
            runbook="RecoveryMarkers",
        ),
        Panel(
            "Slots of schedules",
            "What became of the slots of schedules. `refused` growing means that a type is not to be started.",
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
            "`cut off` means that a server was away in the middle of one.",
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
    "What the rules of the failure map found and repaired, what was lost, discarded, tried again and refused.",
    (TYPE, ACTOR),
    (FOUND, LOST, RETRIES, SCANNERS),
)
