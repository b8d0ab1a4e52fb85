"""When a pool process has reached a limit."""

from __future__ import annotations

from recovery.worker.slots.pool_process import Lifetime


def test_a_process_without_limits_serves_for_ever() -> None:
    lifetime = Lifetime()
    for _ in range(1000):
        lifetime.note_task()
    assert not lifetime.is_over


def test_tasks_are_counted_not_messages() -> None:
    lifetime, seen = Lifetime(max_tasks=2), []
    for _ in range(3):
        lifetime.note_task()
        seen.append(lifetime.is_over)
    assert seen == [False, True, True]


def test_memory_is_looked_at_after_a_task() -> None:
    """Otherwise a limit that is too low would have every process end before its first task."""
    small, large = Lifetime(max_kilobytes=1), Lifetime(max_kilobytes=10**9)
    assert not small.is_over
    for lifetime in (small, large):
        lifetime.note_task()
    assert small.is_over and not large.is_over
