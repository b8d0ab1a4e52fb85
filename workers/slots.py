"""The places that attempts run in, as the engine sees them: processes or threads of a Celery pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from billiard.common import terminate_handler_fired

from recovery.engine import Host
from recovery.records import Decision
from workers.board import Board


class PoolHost(Host):
    """A process of a worker, whose slots say on the board what they run."""

    def __init__(self, board: Board) -> None:
        self._board = board

    @contextmanager
    def running(self, decision: Decision, timeout: float) -> Iterator[None]:
        self._board.enter(decision, timeout)
        try:
            yield
        finally:
            self._board.leave()

    def ends(self, error: BaseException) -> bool:
        """A process of a prefork pool that is told to end (SIGTERM from its parent) raises SystemExit in whatever it
        runs, which may turn into another error on its way."""
        return bool(terminate_handler_fired()) or super().ends(error)
