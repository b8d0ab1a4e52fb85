"""The dashboard Cluster: is all well? Operators open it first, and keep it open."""

from __future__ import annotations

from deploy.grafana.dashboards.model import (
    ACTOR,
    TYPE,
    Board,
    Level,
    Look,
    Panel,
    Query,
    Section,
    Unit,
    largest,
    orange,
    quantile,
    rate,
    red,
    top,
)

_CHOSEN = 'queue=~"$actor"'

WELL = Section(
    "Is all well?",
    (
        Panel(
            "Alerts",
            "Alert rules that fire now. `docs/runbooks.md` has a section for each: what it means, what to check, "
            "what to do.",
            Unit.NUMBER,
            (Query('count(ALERTS{alertname=~"Recovery.*", alertstate="firing"}) or vector(0)'),),
            to="recovery-recovery",
            look=Look.STAT,
            width=3,
            levels=(red(1),),
        ),
        Panel(
            "Oldest overdue",
            "How long the longest overdue record has been past its deadline. Everything that is stuck shows up here. "
            "A few seconds are normal, a minute is not.",
            Unit.SECONDS,
            (Query(largest("recovery_oldest_overdue_seconds")),),
            to="recovery-recovery",
            look=Look.STAT,
            width=3,
            levels=(orange(10), red(60)),
            runbook="RecoveryStuck",
        ),
        Panel(
            "Live without deadline",
            "Records that are not at rest and have no deadline, so no scanner would find them. Should always be 0.",
            Unit.NUMBER,
            (Query(f"sum({largest('recovery_live_without_deadline', 'record')})"),),
            to="recovery-recovery",
            look=Look.STAT,
            width=3,
            levels=(red(1),),
            runbook="RecoveryLiveWithoutDeadline",
        ),
        Panel(
            "Waits for nobody",
            "Tasks of actors that no worker serves. They wait until a worker for them is started.",
            Unit.NUMBER,
            (Query(f"sum({largest('recovery_queued_unserved', 'actor')})"),),
            to="recovery-processes",
            look=Look.STAT,
            width=3,
            levels=(red(1),),
            runbook="RecoveryWaitsForNobody",
        ),
        Panel(
            "Workers alive",
            "Workers whose heartbeat is not overdue. Run at least two, so that one can recover the other's tasks.",
            Unit.NUMBER,
            (Query(largest("recovery_workers_alive")),),
            to="recovery-recovery",
            look=Look.STAT,
            width=3,
            levels=(orange(1), Level(2, "green")),
            below="red",
            runbook="RecoveryNoWorkers",
        ),
        Panel(
            "Scanners",
            "How long ago the scanner that has waited longest ran. Beats send a nudge every second; runs are recorded "
            "every 5 s.",
            Unit.SECONDS,
            (Query(largest("recovery_scanner_last_run_seconds")),),
            to="recovery-recovery",
            look=Look.STAT,
            width=3,
            levels=(orange(15), red(60)),
            runbook="RecoveryNobodyScans",
        ),
        Panel(
            "MongoDB",
            "Whether MongoDB answers all workers.",
            Unit.NUMBER,
            (Query("min(recovery_mongodb_up)"),),
            to="recovery-recovery",
            look=Look.STAT,
            width=3,
            levels=(Level(1, "green"),),
            below="red",
            texts={0: "away", 1: "answers"},
            runbook="RecoveryMongoDBAway",
        ),
        Panel(
            "Redis",
            "Whether Redis answers all workers. Nothing is lost while it is unavailable; tasks begin when it is back.",
            Unit.NUMBER,
            (Query("min(recovery_redis_up)"),),
            to="recovery-recovery",
            look=Look.STAT,
            width=3,
            levels=(Level(1, "green"),),
            below="red",
            texts={0: "away", 1: "answers"},
            runbook="RecoveryRedisAway",
        ),
    ),
)

KEEPS_UP = Section(
    "Does recovery keep up?",
    (
        Panel(
            "Oldest overdue",
            "How long the longest overdue record of each kind has been past its deadline.",
            Unit.SECONDS,
            (Query(largest("recovery_oldest_overdue_seconds", "record"), "{{record}}"),),
            to="recovery-recovery",
            runbook="RecoveryStuck",
        ),
        Panel(
            "Overdue",
            "Records past their deadline. After an outage everything is overdue at once, and this falls as scanners "
            "go through it.",
            Unit.NUMBER,
            (Query(largest("recovery_overdue", "record"), "{{record}}"),),
            to="recovery-recovery",
            runbook="RecoveryOverdueGrows",
        ),
        Panel(
            "Requeue lag",
            "From a record's deadline to its requeue. Normally slightly above the scan interval at most. Nothing is "
            "shown while nothing is requeued.",
            Unit.SECONDS,
            (
                Query(quantile(0.5, "recovery_requeue_lag_seconds"), "half of them within"),
                Query(quantile(0.99, "recovery_requeue_lag_seconds"), "99 % within"),
            ),
            to="recovery-recovery",
            nothing="nothing was requeued",
            runbook="RecoveryStuck",
        ),
    ),
)

WORKERS = Section(
    "Workers and scanners",
    (
        Panel(
            "Workers",
            "Live workers, and workers lost (killed, or silent for too long) within five minutes.",
            Unit.NUMBER,
            (
                Query(largest("recovery_workers_alive"), "alive"),
                Query("sum(increase(recovery_workers_lost_total[5m]))", "lost within 5 min"),
            ),
            to="recovery-recovery",
            runbook="RecoveryWorkersLost",
        ),
        Panel(
            "Versions",
            "Workers by their version of Recovery Workers. Two at once are a deployment under way.",
            Unit.NUMBER,
            (Query("count by (version) (recovery_build_info)", "{{version}}"),),
            to="recovery-recovery",
            look=Look.STACK,
            runbook="RecoveryVersionsMixed",
        ),
        Panel(
            "Last run of scanners",
            "How long ago each scanner ran, on any worker.",
            Unit.SECONDS,
            (Query(largest("recovery_scanner_last_run_seconds", "scanner"), "{{scanner}}"),),
            to="recovery-recovery",
            runbook="RecoveryNobodyScans",
        ),
    ),
)

QUEUES = Section(
    "Queues",
    (
        Panel(
            "Depth",
            "Messages that wait in Redis, of the ten longest queues. Growing means that the actor has too few workers.",
            Unit.NUMBER,
            (Query(top(largest("recovery_queue_depth", "queue", _CHOSEN)), "{{queue}}"),),
            to="recovery-processes",
            runbook="RecoveryQueueGrows",
        ),
        Panel(
            "Age of the oldest task",
            "How long the task that has waited longest has been in its queue, of the ten queues where that is longest.",
            Unit.SECONDS,
            (Query(top(largest("recovery_queue_oldest_seconds", "queue", _CHOSEN)), "{{queue}}"),),
            to="recovery-processes",
            runbook="RecoveryQueueWaits",
        ),
        Panel(
            "Consumers",
            "Workers that take from a queue, of the ten queues with the fewest.",
            Unit.NUMBER,
            (Query(f"bottomk(10, {largest('recovery_queue_consumers', 'queue', _CHOSEN)})", "{{queue}}"),),
            to="recovery-processes",
            runbook="RecoveryWaitsForNobody",
        ),
    ),
)

STORMS = Section(
    "Storms",
    (
        Panel(
            "Requeues",
            "Tasks queued again, by the rule that found them. Many at once mark the end of an outage; a steady rate "
            "means that something kills workers.",
            Unit.PER_SECOND,
            (Query(rate("recovery_requeues_total", "reason"), "{{reason}}"),),
            to="recovery-recovery",
            width=6,
            look=Look.STACK,
            runbook="RecoveryAttemptsLost",
        ),
        Panel(
            "Servers away",
            "Circuit breakers that opened because MongoDB did not answer; messages that Redis did not accept; "
            "scans that were interrupted.",
            Unit.PER_SECOND,
            (
                Query(rate("recovery_circuit_breaker_changes_total", where='state="open"'), "breakers opened"),
                Query(rate("recovery_push_failures_total"), "pushes refused"),
                Query(rate("recovery_scans_total", where='result="cut off"'), "scans cut off"),
            ),
            to="recovery-recovery",
            width=6,
            nothing="none",
            runbook="RecoveryScansCutOff",
        ),
        Panel(
            "The drill's times",
            "Times that canary processes measure while `recovery drill --watch` runs: 99 % were at most this long.",
            Unit.SECONDS,
            (Query(quantile(0.99, "recovery_drill_seconds", "step"), "{{step}}"),),
            to="recovery-recovery",
            width=6,
            nothing="no drill runs",
            runbook="RecoveryDrillLate",
        ),
        Panel(
            "The drill's probes",
            "Measurements of canary processes, by step and by whether the promise was kept.",
            Unit.PER_SECOND,
            (Query(rate("recovery_drill_probes_total", "step, outcome"), "{{step}}: {{outcome}}"),),
            to="recovery-recovery",
            width=6,
            nothing="no drill runs",
            runbook="RecoveryDrillFailed",
        ),
    ),
)

BOARD = Board(
    "recovery-cluster",
    "Recovery: Cluster",
    "Is all well? Deadlines, workers, scanners, servers, queues, storms, and the promise itself.",
    (TYPE, ACTOR),
    (WELL, KEEPS_UP, WORKERS, QUEUES, STORMS),
)
