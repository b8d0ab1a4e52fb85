"""Celery's configuration. Celery carries one hop: no results, chains, chords, ETA messages or pickle."""

from __future__ import annotations

from typing import Any

from kombu import Exchange, Queue

from recovery.limits import available_cpus
from recovery.queue.message import NUDGE, SPARK_QUEUE, SWEEP
from recovery.queue.redis_connection import celery_settings
from recovery.settings import Settings

SWEEP_ASKED = 60.0
"""Seconds after which beat asks for a sweep again: whether one is due, the worker that takes it looks up."""


def configuration(settings: Settings, actors: list[str]) -> dict[str, Any]:
    """Return the configuration of a worker or beat that serves these actors."""
    return {
        **celery_settings(settings.broker_url),
        "broker_connection_retry_on_startup": True,
        # By its default Celery ends a worker after a hundred tries; Redis may be away for as long as it likes.
        "broker_connection_max_retries": None,
        # Redis that answers with an error (its disk or memory is full, it is a replica now) is as good as away; by its
        # default Celery ends the worker.
        "broker_channel_error_retry": True,
        "task_serializer": "json",
        "accept_content": ["json"],
        "task_ignore_result": True,
        # Acknowledged when it is done, so that the prefetch count counts what runs: a worker then holds no
        # message that it does not run at once. A message that is delivered twice is stale the second time.
        "task_acks_late": True,
        "worker_prefetch_multiplier": 1,
        # Unless it is given. Celery would count all CPUs of the machine, those included that this process may not use.
        "worker_concurrency": available_cpus(),
        "worker_send_task_events": False,
        # After Redis was away. Each slot takes one message at a time, so there is nothing to reduce, but a line to log.
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
    """Return what beat sends: a nudge to the scanners, and a request for a sweep unless sweeps are switched off."""
    schedule: dict[str, Any] = {
        # Not tried again: the next one is due before that.
        "nudge": {"task": NUDGE, "schedule": settings.scan_interval, "options": {"queue": NUDGE, "retry": False}}
    }
    if settings.sweep_interval:
        # More often than one is due: a beat that is started again each hour would never come to a day.
        asked = min(settings.sweep_interval, SWEEP_ASKED)
        schedule["sweep"] = {
            "task": SWEEP,
            "schedule": asked,
            "kwargs": {"repair": settings.sweep_repair, "every": settings.sweep_interval},
            # What nobody took before the next one is sent is not needed any more.
            "options": {"queue": SPARK_QUEUE, "expires": asked},
        }
    return schedule


def _queue(name: str) -> Queue:
    return Queue(name, Exchange(""), routing_key=name)
