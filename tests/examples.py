"""Hypothesis on a machine that may be busy: how long an example takes, or is drawn, tells nothing here.

Tests that use it with a database see to it themselves that an example does not meet another's records.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings


def examples(count: int, **more: Any) -> settings:
    """A decorator: try so many examples. `more` are other settings of Hypothesis."""
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    return settings(max_examples=count, deadline=None, suppress_health_check=checks, **more)
