"""The metric of slots that were freed of attempts that hung. Asked for, not counted: where threads hang their worker
ends, and what it had counted would end with it."""

from __future__ import annotations

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily

from recovery.store import Store


def freed_slots(store: Store) -> Metric:
    """How many ever were, by actor: 0 for those that never hung, so that the first one is an increase."""
    family = CounterMetricFamily("recovery_hung_slots", "Slots freed of attempts that hung.", labels=["actor"])
    counts = dict.fromkeys(store.actors.stored(), 0) | {one.id: one.slots for one in store.hung.freed()}
    for actor, slots in sorted(counts.items()):
        family.add_metric([actor], slots)
    return family
