"""Ties the lifeline, the scanners and the drain to a Celery worker's start and end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from celery import Celery, bootsteps, signals
from celery.worker.consumer import Gossip, Mingle

from recovery import tracing
from recovery.drill.orders import CANARY
from recovery.engine import Recovery
from recovery.errors import RecoveryError
from recovery.metrics import counting
from recovery.queue import parse_id, signer
from recovery.worker import control
from recovery.worker import control as hangup
from recovery.worker import metrics_folder as folder
from recovery.worker.beat import keep_short, sign
from recovery.worker.celery_config import SPARK_QUEUE
from recovery.worker.celery_tasks import Running
from recovery.worker.drain import Drain
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.intake import Intake
from recovery.worker.messages.queue_consumption import QueueConsumption
from recovery.worker.messages.stale import StaleMessages
from recovery.worker.messages.transport import Channel
from recovery.worker.operating import Driving, Operating
from recovery.worker.outage_logs import OutageEnd
from recovery.worker.scanning import NudgeConsumer, Scanning
from recovery.worker.serving_canary import consume_canary
from recovery.worker.slots.board import SharedBoard
from recovery.worker.slots.fitness import Fitness
from recovery.worker.slots.hung_slots import HungSlots, by_ending, by_killing
from recovery.worker.slots.pool_process import allow_children
from recovery.worker.slots.pools import Exits, board_of, has_processes, processes, share_no_files
from recovery.worker.start_up import UNUSABLE, check_spark, keep_what_is_imported, prepare_or_end, take_short_turns

log = logging.getLogger(__name__)

REGISTERED_TIMEOUT = 5.0
"""Seconds that a pool process waits at its end until what its tasks have started is registered."""


class WorkerLifecycle(bootsteps.StartStopStep):  # type: ignore[misc]
    """Prepares before the pool forks, starts after it, ends before it ends."""

    requires = ("celery.worker.components:Pool",)
    served: Recovery
    """The application whose records it keeps."""

    def __init__(self, worker: Any, **_: Any) -> None:
        app = self.served
        hangup.handle()
        tracing.install()
        prepare_or_end(app)
        consume_canary(worker.app.amqp.queues, app)
        consumed = worker.app.amqp.queues.consume_from
        if SPARK_QUEUE in consumed:
            check_spark(app)
        queues = tuple(q for q in consumed if q in app.actors)
        Channel.intake = Intake(queues, control.COMMANDS, signer(app.settings), sweeps=SPARK_QUEUE in consumed)
        self.consuming = NudgeConsumer.consuming = QueueConsumption(worker, consumed)
        self.consuming.pause(app.resources.store.actors.blocked())
        # Known before the pool forks, so that its children claim in this worker's name.
        drives = SPARK_QUEUE in consumed
        record = identify(
            worker.hostname,
            queues,
            application=app.name,
            application_version=app.version,
            compatible_with=app.compatible_with,
            spark=drives,
            drill_kill=app.settings.drill_kill and CANARY in queues,
        )
        Running.lifeline = self.lifeline = Lifeline(app, record, self.consuming)
        Running.stale = self.stale = StaleMessages(app)
        Running.board = board = board_of(worker)
        Running.fitness = fitness = Fitness()
        self.drain = Drain(app, self.lifeline, board, lambda: processes(worker).values())
        free = by_killing(board) if isinstance(board, SharedBoard) else by_ending(board, self._end_hung)
        self.hung = HungSlots(app, board, worker.hostname, free)
        self.lifeline.hung = self.hung.report
        self.lifeline.failing, self.lifeline.may_take = fitness.report, fitness.may_take
        self.scanning: Scanning | None = None
        self.operating: Operating | None = None
        self.exits: Exits | None = None
        self.driving = Driving(app, self.lifeline) if drives else None
        keep_what_is_imported()

    def start(self, worker: Any) -> None:
        app = self.served
        _serve_metrics(app, pool_has_processes=has_processes(worker))
        self.exits = _watch_children(worker)
        self.lifeline.start()
        self.hung.start()
        self.stale.start()
        if app.settings.scanners:
            take_short_turns()
            self.operating = NudgeConsumer.operating = Operating(app, self.lifeline)
            self.operating.start()
            self.scanning = NudgeConsumer.scanning = Scanning(app, self.lifeline, self.operating.nudge)
            self.scanning.start()
        if self.driving is not None:
            self.driving.start()
        signals.worker_shutting_down.connect(self._shutting_down, weak=False)
        signals.task_received.connect(self._received, weak=False)
        signals.worker_shutdown.connect(self._shut_down, weak=False)

    def register_with_event_loop(self, _worker: Any, _hub: Any) -> None:
        """The event loop begins, again perhaps. Called by Celery."""
        if self.exits is not None:
            self.exits.loop_begins()

    def stop(self, _worker: Any) -> None:
        self.stale.stop()
        if self.scanning is not None:
            self.scanning.stop()
        if self.operating is not None:
            self.operating.stop()
        if self.driving is not None:
            self.driving.stop()

    terminate = stop

    def _shutting_down(self, **_: Any) -> None:
        self.consuming.end()
        self.hung.stop()
        self.drain.begin()

    def _end_hung(self) -> None:
        self.consuming.end()
        self.drain.begin_hung(self.hung.count)

    def _shut_down(self, **_: Any) -> None:
        self.drain.finish()

    def _received(self, request: Any, **_: Any) -> None:
        message = parse_id(request.id)
        if message is not None:
            self.lifeline.record_taken(request.name, message)


def install(celery: Celery, app: Recovery) -> None:
    """Make workers of `celery` keep the records that recovery needs."""

    class Lifecycle(WorkerLifecycle):
        served = app

    share_no_files()
    celery.steps["worker"].add(Lifecycle)
    celery.steps["consumer"].add(NudgeConsumer)
    celery.steps["consumer"].add(OutageEnd)
    control.register()
    hangup.install()
    signals.beat_init.connect(hangup.handle_in_beat, weak=False)
    # Workers would listen to each other through Redis; nothing here needs what they say.
    Gossip.compatible_transports = Mingle.compatible_transports = frozenset()
    signals.worker_process_init.connect(allow_children, weak=False)
    signals.worker_process_shutdown.connect(_flush(app), weak=False)
    signals.before_task_publish.connect(sign(signer(app.settings)), weak=False)
    signals.after_task_publish.connect(keep_short(app), weak=False)


def _flush(app: Recovery) -> Callable[..., None]:
    def flush(**_: Any) -> None:
        try:
            app.registrar.wait(REGISTERED_TIMEOUT)
            app.applier.flush()
        finally:
            tracing.flush()

    return flush


def _watch_children(worker: Any) -> Exits | None:
    """Have a prefork pool notice at once that a child has died; by itself it does so within 5 s."""
    if worker.hub is None or not has_processes(worker):
        return None
    exits = Exits(worker.hub, lambda: processes(worker).values(), worker.pool.maintain_pool)
    exits.start()
    return exits


def _serve_metrics(app: Recovery, *, pool_has_processes: bool) -> None:
    from recovery.metrics.exporter import serve

    counting.begin(app.actors)
    if pool_has_processes and app.settings.metrics_port != folder.OFF and folder.FOLDER not in os.environ:
        log.warning(
            "metrics lack what the pool's processes count, because %s: have TMPDIR, or %s, name a folder that this "
            "worker may write to", folder.why_none(), folder.FOLDER,
        )  # fmt: skip
    try:
        serve(app.settings, app.resources.store, app.resources.broker)
    except RecoveryError as error:  # a host that is none of ours, a port that is taken
        log.critical("%s", error)
        raise SystemExit(UNUSABLE) from None
