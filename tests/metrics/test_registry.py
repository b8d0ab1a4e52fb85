"""Label sets that would become more and more are counted together."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from recovery.metrics import registry as bounds
from recovery.metrics.registry import MAX_LABEL, OTHER, Counter, Histogram

NAMED = ("made-up-0", "made-up-1", "made-up-2", OTHER, "pack")


def test_beyond_so_many_they_are_counted_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "STRANGERS_SERIES", 3)
    registry = CollectorRegistry()
    counter = Counter("made_up", "For this.", ["type", "state"], registry=registry)
    histogram = Histogram("made_up_seconds", "For this.", ["type"], registry=registry)
    for _ in range(2):
        for number in range(5):
            counter.labels(f"t{number}", "finished").inc()
            histogram.labels(type=f"t{number}").observe(1)
    known = [registry.get_sample_value("made_up_total", {"type": f"t{n}", "state": "finished"}) for n in range(5)]
    assert known == [2, 2, 2, None, None]
    assert registry.get_sample_value("made_up_total", {"type": OTHER, "state": OTHER}) == 4
    assert registry.get_sample_value("made_up_seconds_count", {"type": OTHER}) == 4
    assert len(counter._metrics) == len(histogram._metrics) == 4


def test_what_is_ours_is_told_by_its_name_beside_any_number_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever starts processes may make up names, and they must not take the place of what this process serves."""
    monkeypatch.setattr(bounds, "_ours", set())
    monkeypatch.setattr(bounds, "_strangers", set())
    monkeypatch.setattr(bounds, "MAX_STRANGERS", 2)
    registry = CollectorRegistry()
    counter = Counter("made_up", "For this.", ["rule", "actor"], registry=registry)
    for number in range(5):
        counter.labels("DUE", f"made-up-{number}").inc()
    bounds.ours(["pack"])
    counter.labels("DUE", "pack").inc()
    counted = {actor: registry.get_sample_value("made_up_total", {"rule": "DUE", "actor": actor}) for actor in NAMED}
    assert counted == {"made-up-0": 1, "made-up-1": 1, "made-up-2": None, OTHER: 3, "pack": 1}


def test_what_is_too_long_is_cut() -> None:
    registry = CollectorRegistry()
    Counter("made_up", "For this.", ["type"], registry=registry).labels("a" * (MAX_LABEL + 1)).inc()
    assert registry.get_sample_value("made_up_total", {"type": "a" * MAX_LABEL}) == 1
