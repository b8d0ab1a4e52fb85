"""A process that traces, as long as a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from recovery import Settings
from tests.emptied import emptied as emptied
from tests.emptied import lasting as lasting
from tests.tracing.exported import Seen, seen
from tests.world import World


class Traces:
    """What this process traces."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False, **options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def all(self) -> list[Seen]:
        return [seen(span) for span in self.exporter.get_finished_spans()]

    def named(self, name: str) -> list[Seen]:
        return sorted((one for one in self.all() if one.name == name), key=lambda one: one.start)

    @contextmanager
    def on(self) -> Iterator[None]:
        """Within, this process traces: it can be set once for a process, and other tests run in it."""
        with patch.object(trace, "get_tracer_provider", lambda: self.provider):
            yield


@pytest.fixture
def traces() -> Iterator[Traces]:
    made = Traces()
    with made.on():
        yield made


@pytest.fixture
def world(emptied: Settings) -> World:
    return World(emptied)
