"""Answers Celery beat: a nudge makes the scanners of one worker run, in a thread of its parent process.

Not in the pool, which may be full of long attempts just when recovery is wanted. Nudges that come while a scan
runs are one more scan, however many they are.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from celery import bootsteps
from kombu import Consumer, Exchange, Queue

from recovery.engine import Recovery
from recovery.scan import DecisionScanner, GraphScanner, ProcessScanner, Scanner, WorkerScanner
from workers.config import NUDGE
from workers.lifeline import Lifeline

log = logging.getLogger(__name__)


class Scanning:
    """The scanners of a worker and the thread that they run in."""

    def __init__(self, app: Recovery, lifeline: Lifeline) -> None:
        resources, applier = app.resources, app.applier
        self._scanners: list[Scanner[Any]] = [
            WorkerScanner(resources, applier, lifeline.may_judge),
            DecisionScanner(resources, applier),
            GraphScanner(resources, applier),
            ProcessScanner(resources, applier),
        ]
        self._nudged, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="scanners", daemon=True)

    def start(self) -> None:
        """Begin to answer nudges."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more; a scan that runs ends with its page."""
        self._ending.set()
        self._nudged.set()

    def nudge(self) -> None:
        """Scan soon. Does not wait."""
        self._nudged.set()

    def _run(self) -> None:
        while self._nudged.wait() and not self._ending.is_set():
            self._nudged.clear()
            for scanner in self._scanners:
                try:
                    scanner.run_once()
                except Exception:  # a scanner that fails must not end the others
                    log.exception("%s scan failed", scanner.name)


class NudgeConsumer(bootsteps.ConsumerStep):  # type: ignore[misc]
    """Consumes the nudges' queue beside the actors' queues."""

    scanning: Scanning | None = None

    def get_consumers(self, channel: Any) -> list[Consumer]:
        if self.scanning is None:
            return []
        queue = Queue(NUDGE, Exchange(""), routing_key=NUDGE)
        return [Consumer(channel, queues=[queue], callbacks=[self._nudged], accept=["json"], no_ack=True)]

    def _nudged(self, _body: Any, _message: Any) -> None:
        if self.scanning is not None:
            self.scanning.nudge()
