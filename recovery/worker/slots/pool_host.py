"""The places that attempts run in, as the engine sees them: processes or threads of a Celery pool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from billiard.common import terminate_handler_fired

from recovery.engine import Host
from recovery.records import Decision
from recovery.worker.slots.board import Board
from recovery.worker.slots.fitness import Fitness
from recovery.worker.slots.lifetime import OwnLifetime


class GivenBack(BaseException):
    """What came back from an actor counts for nothing: its worker ends by force, and gives back what it runs."""


class PoolHost(Host):
    """A process of a worker, whose slots say on the board what they run."""

    def __init__(self, board: Board, fitness: Fitness) -> None:
        self._board, self._fitness = board, fitness

    @contextmanager
    def running(self, decision: Decision, timeout: float) -> Iterator[None]:
        """Raises GivenBack, before it or after, once the board is closed: what an attempt started is stopped then, and
        killed, so it may have failed for that, or come to a value that it has none of."""
        self._let_pass()
        OwnLifetime.lifetime.note_task()
        self._board.enter(decision, timeout)
        try:
            yield
        finally:
            self._board.leave()
        self._let_pass()

    @property
    def takes_more(self) -> bool:
        """No, once this pool process has reached the limit of its tasks or its memory."""
        return not OwnLifetime.lifetime.is_over

    def was_done(self) -> None:
        self._fitness.was_done()

    def was_not_done(self, decision_id: str, pass_key: str | None, error: Exception) -> None:
        self._fitness.was_not_done(decision_id, pass_key, error)

    def _let_pass(self) -> None:
        if self._board.closed:
            raise GivenBack

    def ends(self, error: BaseException) -> bool:
        """A process of a prefork pool that is told to end (SIGTERM from its parent) raises SystemExit in whatever it
        runs, which may turn into another error on its way."""
        return bool(terminate_handler_fired()) or super().ends(error)
