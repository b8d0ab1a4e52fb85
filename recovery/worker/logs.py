"""What workers log, in Celery's form or as JSON: each line of an actor with what runs, and one line for the end of each
attempt.

Celery says of a message that its task succeeded, also where the actor failed, and nothing of tasks that were run on the
spot. That line is left out for actors; the attempt has one of its own (`recovery.engine.lifecycle.attempt`).
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Any

from celery import signals
from celery.app import trace
from celery.utils.log import ColorFormatter, get_multiprocessing_logger

from recovery.engine import LogContext
from recovery.forms import LogFormat
from recovery.json_logs import JsonFormatter, log_json

FORMAT = "[%(asctime)s: %(levelname)s/%(processName)s] %(recovery)s%(message)s"
"""Celery's own, with what runs."""


class _NotOfActors(logging.Filter):
    """Drops Celery's word on the end of a message of an actor."""

    def __init__(self, actors: Container[str]) -> None:
        super().__init__()
        self._actors = actors

    def filter(self, record: logging.LogRecord) -> bool:
        fields: Any = record.args
        return record.msg != trace.LOG_SUCCESS or fields.get("name") not in self._actors


def install(actors: Container[str], log_format: LogFormat) -> None:
    """Have the workers of this process log so. Handlers that an application sets up by itself are left as they are, but
    for the filter where Celery tells of them."""
    if log_format is LogFormat.JSON:
        log_json()  # what is said before Celery sets logging up
    add_context = _AddContext(log_format)
    signals.after_setup_logger.connect(add_context, weak=False)
    signals.after_setup_task_logger.connect(add_context, weak=False)
    trace.logger.addFilter(_NotOfActors(actors))


class _AddContext:
    """For the signals by which Celery tells of a logger that it has set up."""

    def __init__(self, log_format: LogFormat) -> None:
        self._log_format = log_format

    def __call__(self, logger: logging.Logger, format: str, colorize: bool, **_: Any) -> None:
        # What the pool says of its processes goes to handlers of its own, of which no signal tells.
        for handler in (*logger.handlers, *get_multiprocessing_logger().handlers):
            handler.addFilter(LogContext())
            if getattr(handler.formatter, "_fmt", None) != format:
                continue  # it is the application's
            as_json = self._log_format is LogFormat.JSON
            handler.setFormatter(JsonFormatter() if as_json else ColorFormatter(FORMAT, use_color=colorize))
