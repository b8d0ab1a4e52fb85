"""What an actor and a process type may be told, with FailMap's defaults. Times are in seconds.

Source: reference note FailMap, 'Настройки актера и значения по умолчанию'. Workers store the settings of
their actors in MongoDB when they start, so that a scanner or a sweep that does not have the application's
code knows them.
"""

from __future__ import annotations

from dataclasses import dataclass

from recovery.records.models import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorPreferences(Record):
    """Settings of one actor. `id` is its name, which is also its queue's."""

    id: str
    worker_timeout: float = 60.0
    """How long an attempt may take from claim, or from its last heartbeat, to result."""
    accept_first: bool = True
    """Take the first value that comes, from whichever attempt; False: only from the current pass."""
    restart_after_work_timeout: bool = True
    """Requeue an attempt that timed out; False: end the task with a timeout error."""
    # One time-out is a deployment, three a bad night; ten in a row is a task that kills its workers. At the
    # default worker_timeout a task that always hangs breaks its process after some ten minutes.
    max_work_timeouts: int = 10
    """How many attempts may be lost before the task ends with an error and its process is broken."""
    auto_heartbeat: bool = False
    """Move the deadline while the function runs. A hung function then never times out; a dead one does."""
