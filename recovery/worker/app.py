"""The Celery application: `celery -A recovery.worker.app worker`, `celery -A recovery.worker.app beat`.

It serves the `Recovery` object that RECOVERY_APP names. Each actor has a queue; without `-Q` a worker consumes the
queues of all actors. Sweeps are in the queue `spark`, which only workers that name it consume.
"""

from __future__ import annotations

import logging
import os
import sys

import click
from celery import Celery

from recovery.certificates import of_redis
from recovery.engine import load_app
from recovery.errors import RecoveryError, SettingsError
from recovery.log_lines import log_printable
from recovery.queue.celery_app import OwnCelery, ignored_variables
from recovery.settings import current
from recovery.wording import printable_lines
from recovery.worker import bootsteps, logs
from recovery.worker import celery_tasks as tasks
from recovery.worker.celery_config import configuration
from recovery.worker.logs import StreamLogging
from recovery.worker.messages import transport
from recovery.worker.serving_canary import add_canary

log = logging.getLogger(__name__)

REMAPPED = "REMAP_SIGTERM"


def make_celery() -> Celery:
    """Return the Celery application for the settings in the environment. Raises SettingsError."""
    _refuse_remapped_signals()
    _ignore_option_variables()
    log_printable()
    recovery_app = load_app(current().app)
    add_canary(recovery_app)
    if (tls := of_redis(recovery_app.settings.broker_url)) is not None:
        tls.check()  # otherwise Celery would retry for ever; and a beat connects to nothing else before
    transport.install()
    settings = recovery_app.settings
    logs.install(recovery_app.actors.keys(), settings.log_format, settings.broker_url)
    if ignored := ignored_variables():
        log.warning("%s: set for Celery, but ignored: use RECOVERY_… settings or options", ", ".join(ignored))
    celery = OwnCelery("recovery", set_as_current=True, amqp=transport.Messaging, log=StreamLogging)
    celery.conf.update(configuration(settings, sorted(recovery_app.actors)))
    tasks.register(celery, recovery_app)
    bootsteps.install(celery, recovery_app)
    return celery


def _refuse_remapped_signals() -> None:
    """Raise SettingsError if Celery, which has read this variable already, would treat SIGTERM as another signal."""
    if os.environ.get(REMAPPED):
        raise SettingsError(
            f"{REMAPPED}={os.environ[REMAPPED]}: a worker that is told to end would give its tasks no time to end; "
            f"unset {REMAPPED}, and end workers by SIGTERM"
        )


def _ignore_option_variables() -> None:
    """Keep Celery's command, if it loads this module, from reading CELERY_WORKER_… and CELERY_BEAT_… as options."""
    if (context := click.get_current_context(silent=True)) is not None:
        context.auto_envvar_prefix = None


try:
    app = make_celery()
except RecoveryError as error:
    # Otherwise Celery would show a traceback of its own loader.
    print(f"error: {printable_lines(error)}", file=sys.stderr)
    sys.exit(2)
