"""Answers Celery beat as the scanners do: a nudge makes this worker work at operators' operations, in another thread.

Not in the scanners' own, which must find what is overdue while an operation goes through millions of processes. Each
worker works at one range at a time; one that is nudged while others are at it takes the next, so within a few seconds
all are.
"""

from __future__ import annotations

import threading

from recovery.engine import Recovery
from recovery.engine.isolation import tell
from recovery.operations import OperationWorker
from recovery.worker.lifeline.lifeline import Lifeline

TURN = 10.0
"""Seconds after which it is looked whether other operations are to have their turn."""


class Operating:
    """The thread of a worker that works at operations."""

    def __init__(self, app: Recovery, lifeline: Lifeline) -> None:
        self._worker = OperationWorker(app.resources, app.applier, lifeline.worker.id)
        self._lifeline = lifeline
        self._nudged, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="operations", daemon=True)

    def start(self) -> None:
        """Begin to answer nudges."""
        self._thread.start()

    def stop(self) -> None:
        """Answer no more; a page that is under way is finished."""
        self._ending.set()
        self._worker.stop()
        self._nudged.set()

    def nudge(self) -> None:
        """Look for operations soon. Does not wait."""
        self._nudged.set()

    def _run(self) -> None:
        while self._nudged.wait() and not self._ending.is_set():
            self._nudged.clear()
            if self._lifeline.judging.in_outage_grace():
                continue
            try:
                if self._worker.run_once(TURN):
                    self._nudged.set()
            except Exception as error:  # of whatever another program wrote: the next nudge goes on
                tell("operations", error)
