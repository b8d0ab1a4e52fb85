"""The lifeline of a worker, in a thread of its parent process: heartbeats, and what is known at once.

Every `heartbeat_interval` it writes the worker's record with a new deadline and the poll statistics of its
queues, and looks whether a worker of the same host is gone; that one's claims are requeued at once. When the
pool tells that a child died, what the child ran is requeued at once. With the setting `events` off it does
neither: then the deadlines alone bring everything on.
"""

from __future__ import annotations

import logging
import threading
import time
from datetime import datetime
from queue import Empty, SimpleQueue

from pymongo.errors import PyMongoError
from redis.exceptions import RedisError

from recovery.engine import Recovery
from recovery.queue import MessageId
from recovery.records import Worker
from recovery.records.ids import holder
from recovery.repair import Repairer
from recovery.scan import rescue
from workers.identity import is_gone

log = logging.getLogger(__name__)

ALL_TRIES = 10
"""Dead children seen to before the next heartbeat is due; one that the database can't take now is kept."""


class Lifeline:
    """Keeps one worker's record alive. `start` in the parent process, after the pool has forked."""

    def __init__(self, app: Recovery, worker: Worker) -> None:
        self.worker = worker
        self._app = app
        self._settings = app.settings
        self._taken: dict[str, datetime | None] = dict.fromkeys(worker.queues)
        self._lost: SimpleQueue[int] = SimpleQueue()
        self._wake, self._ending = threading.Event(), threading.Event()
        self._served_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="lifeline", daemon=True)

    def start(self) -> None:
        """Begin to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Stop beating; the record stays until it is removed or found overdue."""
        self._ending.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5)

    def took(self, queue: str, message: MessageId) -> None:
        """The worker took a message from a queue. Called for every message: cheap."""
        queued_at, youngest = message.queued_at, self._taken.get(queue)
        if queued_at is not None and (youngest is None or queued_at > youngest):
            self._taken[queue] = queued_at

    def child_died(self, pid: int) -> None:
        """A pool child died while it ran something."""
        if self._settings.events and not self._ending.is_set():
            self._lost.put(pid)
            self._wake.set()

    def may_judge(self) -> bool:
        """Whether this worker was up and served for a whole heartbeat timeout: may it judge by silence?"""
        if not self._settings.events or self._served_since is None:
            return False
        return time.monotonic() - self._served_since > self._settings.heartbeat_timeout

    def _run(self) -> None:
        next_beat = time.monotonic()
        while not self._ending.is_set():
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + self._settings.heartbeat_interval
                self._beat()
            self._requeue_lost()
            self._wake.wait(max(0.0, next_beat - time.monotonic()))
            self._wake.clear()

    def _beat(self) -> None:
        store, began = self._app.resources.store, time.monotonic()
        try:
            store.workers.beat(self.worker, self._settings.heartbeat_timeout)
            store.queues.polled(dict(self._taken))
            if time.monotonic() - began > self._settings.heartbeat_interval:
                self._served_since = None  # the database was away for a while, and so for all
            elif self._served_since is None:
                self._served_since = time.monotonic()
            if self._settings.events:
                self._rescue_neighbours()
        except (PyMongoError, RedisError) as error:
            self._served_since = None
            log.warning("heartbeat not written (%s); next in %g s", error, self._settings.heartbeat_interval)

    def _rescue_neighbours(self) -> None:
        neighbours = self._app.resources.store.workers.on_host(self.worker.host)
        gone = [worker.id for worker in neighbours if worker.id != self.worker.id and is_gone(worker)]
        if gone:
            log.warning("gone from this host: %s; what they had claimed is requeued", ", ".join(gone))
            self._rescue(gone)

    def _requeue_lost(self) -> None:
        for _ in range(ALL_TRIES):
            try:
                pid = self._lost.get_nowait()
            except Empty:
                return
            try:
                log.warning("pool process %d died; what it had claimed is requeued", pid)
                self._rescue([holder(self.worker.id, pid)])
            except PyMongoError as error:
                log.warning("not requeued yet (%s)", error)
                self._lost.put(pid)

    def _rescue(self, lost: list[str]) -> None:
        rescue(self._app.resources, Repairer(self._app.resources, self._app.applier), lost)
