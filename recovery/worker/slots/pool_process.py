"""Celery's prefork pool, whose processes keep to their limits (`lifetime`) and outlive signals that mean their worker
(`own_signals`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from billiard.pool import EX_RECYCLE
from celery.concurrency import asynpool

from recovery.worker.slots.board import SharedBoard
from recovery.worker.slots.lifetime import Lifetime, OwnLifetime
from recovery.worker.slots.own_signals import OwnSignals


def own_pool(board: SharedBoard) -> type[asynpool.AsynPool]:
    """Return the class of a pool whose slots write on this board."""

    class PoolProcess(asynpool.Worker):  # type: ignore[misc]
        """What runs in each process."""

        wait_for_job: Callable[..., Any]

        def after_fork(self) -> None:
            super().after_fork()
            OwnLifetime.lifetime = Lifetime(self.maxtasks, self.max_memory_per_child)
            OwnSignals(board).install()

        def _make_child_methods(self, *args: Any, **options: Any) -> None:
            super()._make_child_methods(*args, **options)
            self.wait_for_job = _until_over(self.wait_for_job)

    class Pool(asynpool.AsynPool):  # type: ignore[misc]
        """What the main process has of them."""

        Worker = PoolProcess

        def terminate_job(self, *args: Any, **options: Any) -> None:
            board.end_at_once()
            super().terminate_job(*args, **options)

        def terminate(self) -> None:
            board.end_at_once()
            super().terminate()

    return Pool


def _until_over(wait_for_job: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that waits for a message, and ends a process that has reached a limit."""

    def wait(*args: Any, **options: Any) -> Any:
        if OwnLifetime.lifetime.is_over:
            raise SystemExit(EX_RECYCLE)  # as billiard ends a process at its own limits; messages go to the next one
        return wait_for_job(*args, **options)

    return wait
