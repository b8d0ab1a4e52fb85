"""Celery's configuration. Celery only delivers messages: no results, chains, chords, ETA messages or pickle."""

from __future__ import annotations

from typing import Any

from kombu import Exchange, Queue

from recovery.limits import available_cpus
from recovery.queue.message import NUDGE, SPARK_QUEUE, SWEEP
from recovery.queue.redis_connection import celery_settings
from recovery.settings import Settings

SWEEP_ASKED = 60.0
"""Maximum seconds between two sweep requests of a beat. The worker that takes a request checks whether a sweep is due.
"""


def configuration(settings: Settings, actors: list[str]) -> dict[str, Any]:
    """Return the configuration of a worker or beat that serves these actors."""
    return {
        **celery_settings(settings.broker_url),
        "broker_connection_retry_on_startup": True,
        # By default Celery ends a worker after a hundred tries, but Redis may be away for any time.
        "broker_connection_max_retries": None,
        # A Redis that answers with an error (its disk or memory is full, it has become a replica) is treated as away.
        # By default Celery would end the worker.
        "broker_channel_error_retry": True,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        # Acknowledged after the task is done, so that the prefetch count includes running tasks: a worker then holds no
        # message that it does not run at once. A message that is delivered twice is stale the second time.
        "task_acks_late": True,
        "worker_prefetch_multiplier": 1,
        # The default without an option. Celery would count all CPUs of the machine, including those that this process
        # may not use.
        "worker_concurrency": available_cpus(),
        "worker_send_task_events": False,
        # After an outage of Redis. Each slot takes one message at a time, so a reduction would change nothing, and log
        # a line.
        "worker_enable_prefetch_count_reduction": False,
        "worker_hijack_root_logger": True,
        "task_default_queue": "recovery.default",
        "task_queues": [_queue(actor) for actor in actors],
        "task_create_missing_queues": True,
        "task_routes": {SWEEP: {"queue": SPARK_QUEUE}, **{actor: {"queue": actor} for actor in actors}},
        "beat_schedule": beat_schedule(settings),
        "beat_scheduler": "recovery.worker.beat:QuietScheduler",
        "beat_max_loop_interval": settings.scan_interval,
    }


def beat_schedule(settings: Settings) -> dict[str, Any]:
    """Return beat's schedule: a nudge for the scanners, and a sweep request unless sweeps are switched off."""
    schedule: dict[str, Any] = {
        # Not retried, because the next nudge is due before a retry.
        "nudge": {"task": NUDGE, "schedule": settings.scan_interval, "options": {"queue": NUDGE, "retry": False}}
    }
    if settings.sweep_interval:
        # More often than sweeps are due. Otherwise a beat that is restarted each hour would never request a daily
        # sweep.
        request_interval = min(settings.sweep_interval, SWEEP_ASKED)
        schedule["sweep"] = {
            "task": SWEEP,
            "schedule": request_interval,
            "kwargs": {"repair": settings.sweep_repair, "every": settings.sweep_interval},
            # A request that nobody has taken is not needed once the next one is sent.
            "options": {"queue": SPARK_QUEUE, "expires": request_interval},
        }
    return schedule


def _queue(name: str) -> Queue:
    return Queue(name, Exchange(""), routing_key=name)
