"""How long a pool process serves: until it has run `--max-tasks-per-child` tasks, or has `--max-memory-per-child`.

Celery counts messages. A slot runs many tasks for one message, so Celery's count alone would let a process run
hundreds of tasks over its limit.
"""

from __future__ import annotations

from billiard.compat import mem_rss


class Lifetime:
    """The limits of one pool process, and how many tasks it has run."""

    def __init__(self, max_tasks: int | None = None, max_kilobytes: int | None = None) -> None:
        self._max_tasks, self._max_kilobytes = max_tasks, max_kilobytes
        self._tasks = 0

    def note_task(self) -> None:
        """Count a task that is about to run."""
        self._tasks += 1

    @property
    def is_over(self) -> bool:
        """Whether this process has reached a limit: it takes no more tasks, and ends after what it has claimed."""
        if self._max_tasks and self._tasks >= self._max_tasks:
            return True
        # A limit below what an idle process has: each runs one batch, rather than none for ever.
        return bool(self._max_kilobytes and self._tasks) and mem_rss() > self._max_kilobytes


class OwnLifetime:
    """Where the lifetime of the pool process that this is can be found. Without limits in any other process."""

    lifetime = Lifetime()
