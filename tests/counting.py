"""What this process has counted so far."""

from __future__ import annotations

from prometheus_client import REGISTRY


def operations(operation: str) -> float:
    """What operators did of this kind."""
    return REGISTRY.get_sample_value("recovery_operations_total", {"operation": operation}) or 0.0


def failed_steps() -> float:
    """How many steps failed for what a record holds."""
    return REGISTRY.get_sample_value("recovery_failed_steps_total") or 0.0
