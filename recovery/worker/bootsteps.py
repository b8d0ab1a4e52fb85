"""Tie the lifeline, the scanners and the drain to a Celery worker's start and end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

from celery import Celery, bootsteps, signals
from celery.worker.consumer import Gossip, Mingle

from recovery import metrics_folder, tracing
from recovery.engine import Recovery
from recovery.errors import RecoveryError
from recovery.metrics.registry import begin_at_zero
from recovery.queue import parse_id, signer
from recovery.queue.message import SPARK_QUEUE
from recovery.records.ids import CANARY
from recovery.worker import control
from recovery.worker.beat import keep_short, sign
from recovery.worker.celery_tasks import Running, WorkerParts
from recovery.worker.drain import Drain
from recovery.worker.identity import identify
from recovery.worker.lifeline.lifeline import Lifeline
from recovery.worker.messages.intake import MessageIntake
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
from recovery.worker.start_up import UNUSABLE, check_spark, keep_what_is_imported, prepare_or_end

log = logging.getLogger(__name__)

REGISTERED_TIMEOUT = 5.0
"""Seconds that a pool process waits at its end until the processes that its tasks have started are registered."""


class WorkerLifecycle(bootsteps.StartStopStep):  # type: ignore[misc]
    """A step of Celery's worker. It prepares before the pool forks, starts the services after the fork, and stops them
    before the worker ends."""

    requires = ("celery.worker.components:Pool",)
    served: Recovery
    """The application that the worker serves."""

    def __init__(self, worker: Any, **_: Any) -> None:
        app = self.served
        control.handle_hangup()
        tracing.install()
        prepare_or_end(app)
        consume_canary(worker.app.amqp.queues, app)
        consumed = worker.app.amqp.queues.consume_from
        drives = SPARK_QUEUE in consumed
        if drives:
            check_spark(app)
        queues = tuple(q for q in consumed if q in app.actors)
        Channel.intake = MessageIntake(queues, control.COMMANDS, signer(app.settings), sweeps=drives)
        self.consuming = NudgeConsumer.consuming = QueueConsumption(worker, consumed)
        self.consuming.pause(app.resources.store.actors.blocked())
        # Set before the pool forks, so that its children claim in this worker's name.
        record = identify(
            worker.hostname,
            queues,
            application=app.name,
            application_version=app.version,
            compatible_with=app.compatible_with,
            spark=drives,
            drill_kill=app.settings.drill_kill and CANARY in queues,
        )
        self.lifeline = Lifeline(app, record, self.consuming)
        stale, board, fitness = StaleMessages(app), board_of(worker), Fitness()
        Running.parts = WorkerParts(self.lifeline, stale, board, fitness)
        self.drain = Drain(app, self.lifeline, board, lambda: processes(worker).values())
        free_slot = by_killing(board) if isinstance(board, SharedBoard) else by_ending(board, self._end_hung)
        self.hung = HungSlots(app, board, worker.hostname, free_slot)
        self.lifeline.hung = self.hung.report
        self.lifeline.failing, self.lifeline.may_take = fitness.report, fitness.may_take
        self.exits: Exits | None = None
        self._services: list[StaleMessages | Operating | Scanning | Driving] = [stale]
        self._drives = drives
        keep_what_is_imported()

    def start(self, worker: Any) -> None:
        app = self.served
        _serve_metrics(app, pool_has_processes=has_processes(worker))
        self.exits = _watch_children(worker)
        self.lifeline.start()
        self.hung.start()
        if app.settings.scanners:
            operating = NudgeConsumer.operating = Operating(app, self.lifeline)
            scanning = NudgeConsumer.scanning = Scanning(app, self.lifeline, operating.nudge)
            self._services += [operating, scanning]
        if self._drives:
            self._services.append(Driving(app, self.lifeline))  # stopped last, because its end may take seconds
        for service in self._services:
            service.start()
        signals.worker_shutting_down.connect(self._shutting_down, weak=False)
        signals.task_received.connect(self._received, weak=False)
        signals.worker_shutdown.connect(self._shut_down, weak=False)

    def register_with_event_loop(self, _worker: Any, _hub: Any) -> None:
        """Watch the pool's processes in a new event loop. Celery calls this for each new loop."""
        if self.exits is not None:
            self.exits.loop_begins()

    def stop(self, _worker: Any) -> None:
        for service in self._services:
            service.stop()

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
    """Make workers of `celery` keep the records that recovery needs, and connect all signal handlers."""

    class Lifecycle(WorkerLifecycle):
        served = app

    share_no_files()
    celery.steps["worker"].add(Lifecycle)
    celery.steps["consumer"].add(NudgeConsumer)
    celery.steps["consumer"].add(OutageEnd)
    control.register_commands()
    control.keep_hangup_from_celery()
    signals.beat_init.connect(control.handle_hangup_in_beat, weak=False)
    # Otherwise workers would listen to each other through Redis, although nothing here needs that.
    Gossip.compatible_transports = Mingle.compatible_transports = frozenset()
    signals.worker_process_init.connect(allow_children, weak=False)
    signals.worker_process_shutdown.connect(_flush(app), weak=False)
    signals.before_task_publish.connect(sign(signer(app.settings)), weak=False)
    signals.after_task_publish.connect(keep_short(app), weak=False)


def _flush(app: Recovery) -> Callable[..., None]:
    def flush(**_: Any) -> None:
        try:
            app.registrar.wait(REGISTERED_TIMEOUT)
            app.outbox.flush()
        finally:
            tracing.flush()

    return flush


def _watch_children(worker: Any) -> Exits | None:
    """Make a prefork pool notice at once that a child has died; by itself it notices within 5 s. Return the watcher;
    None if there are no children to watch."""
    if worker.hub is None or not has_processes(worker):
        return None
    exits = Exits(worker.hub, lambda: processes(worker).values(), worker.pool.maintain_pool)
    exits.start()
    return exits


def _serve_metrics(app: Recovery, *, pool_has_processes: bool) -> None:
    from recovery.metrics.exporter import serve

    begin_at_zero(app.actors)
    if (
        pool_has_processes
        and app.settings.metrics_port != metrics_folder.OFF
        and metrics_folder.MULTIPROC_DIR not in os.environ
    ):
        log.warning(
            "metrics lack the counts of the pool's processes, because %s: set TMPDIR or %s to a folder that this "
            "worker may write to", metrics_folder.why_none(), metrics_folder.MULTIPROC_DIR,
        )  # fmt: skip
    try:
        serve(app.settings, app.resources.store, app.resources.broker)
    except RecoveryError as error:  # the host is not one of ours, or the port is taken
        log.critical("%s", error)
        raise SystemExit(UNUSABLE) from None
