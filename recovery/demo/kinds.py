"""The kinds of faults that a demo with `--chaos` is made of, and how long each lasts; and the kinds of disasters."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of faults."""

    WORKER_KILLED = "worker_killed"
    POOL_PROCESS_KILLED = "pool_process_killed"
    WORKER_FROZEN = "worker_frozen"
    BEAT_KILLED = "beat_killed"
    SECOND_BEAT = "second_beat"
    PRIMARY_KILLED = "primary_killed"
    PRIMARY_STEPPED_DOWN = "primary_stepped_down"
    PRIMARY_FROZEN = "primary_frozen"
    PRIMARY_LOST = "primary_lost"
    """Replication stops, then the primary dies: what it wrote meanwhile is gone."""
    MONGODB_AWAY = "mongodb_away"
    """All of it, for longer than any call waits."""
    VALKEY_KILLED = "valkey_killed"
    VALKEY_LOST = "valkey_lost"
    MESSAGES_DROPPED = "messages_dropped"


LASTS: Mapping[Kind, float] = {
    # At the most: until others have done what it was at. What it brings when it comes back is too late then.
    Kind.WORKER_FROZEN: 20.0,
    Kind.BEAT_KILLED: 3.0,
    Kind.SECOND_BEAT: 3.0,
    # Longer than an election, so that there are two of them.
    Kind.PRIMARY_KILLED: 5.0,
    Kind.PRIMARY_FROZEN: 6.0,
    Kind.PRIMARY_LOST: 5.0,
    Kind.MONGODB_AWAY: 20.0,
    Kind.VALKEY_KILLED: 2.0,
    Kind.VALKEY_LOST: 2.0,
}
"""Seconds until it is mended; what is not here is at once."""

FAILOVERS = frozenset(
    {
        *(Kind.PRIMARY_KILLED, Kind.PRIMARY_STEPPED_DOWN, Kind.PRIMARY_FROZEN, Kind.PRIMARY_LOST),
        # What was in no journal yet is gone with all members.
        Kind.MONGODB_AWAY,
    }
)
"""Faults after which what a majority did not have may be taken back."""


class Disaster(StrEnum):
    """What is destroyed."""

    REDIS = "redis"
    """Every message, and all else that is in Redis."""
    GRAPH = "graph"
    """The whole collection of graphs."""
    MIXED = "mixed"
    """A random tenth of the records of every kind."""
