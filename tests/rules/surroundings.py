"""A moment, and records of a process at that moment, for the rules to look at."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from recovery.records import ActorPreferences, Decision, DecisionState, ProcessTypePreferences, QueueStatistics
from recovery.records.ids import record_id
from recovery.rules import Surroundings

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
MARGIN, MESSAGE_MARGIN, POLLED_TIMEOUT = timedelta(seconds=5), timedelta(seconds=2), timedelta(seconds=10)
LONG_AGO, SOON = NOW - timedelta(hours=1), NOW + timedelta(minutes=10)
JUST_NOW = NOW - timedelta(milliseconds=100)
CLAIM_MARGIN = timedelta(seconds=0.8)
TICK = timedelta(milliseconds=1)


ID = record_id("0" * 32, "start")
"""Of the decision that is judged."""


def around(**changes: Any) -> Surroundings:
    """Surroundings at `NOW`. `queue` is what is known of the queue `add`, `queues` when others were polled last;
    `actor` are the settings of `add`, `process_type` those of processes of the type `add`."""
    queue, actor = changes.pop("queue", None), changes.pop("actor", None)
    polled, kind = changes.pop("queues", {}), changes.pop("process_type", None)
    queues = {name: QueueStatistics(id=name, polled_at=moment) for name, moment in polled.items()}
    return Surroundings(
        now=NOW,
        actors={"add": ActorPreferences(id="add", **actor)} if actor else {},
        process_types={"add": ProcessTypePreferences(id="add", **kind)} if kind else {},
        queues=queues | ({"add": QueueStatistics(id="add", **queue)} if queue else {}),
        polled_within=POLLED_TIMEOUT,
        message_margin=MESSAGE_MARGIN,
        claim_margin=CLAIM_MARGIN,
        margin=MARGIN,
        **changes,
    )


def decision(state: DecisionState, **changes: Any) -> Decision:
    """A decision of the actor `add` whose deadline is to come."""
    return Decision(id=ID, actor="add", state=state, recovery_time=SOON).evolve(**changes)
