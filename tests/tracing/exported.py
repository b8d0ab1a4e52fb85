"""Spans as a test looks at them: those of this process, and those that others wrote into a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult


@dataclass(frozen=True)
class Seen:
    """One span."""

    name: str
    trace: str
    id: str
    parent: str | None
    kind: str
    start: int
    end: int
    """Nanoseconds."""
    attributes: dict[str, Any]
    status: str
    events: list[str]
    links: list[str]

    def said(self, name: str) -> Any:
        """One of our attributes, by the rest of its name."""
        return self.attributes.get(f"recovery.{name}")


def seen(span: ReadableSpan) -> Seen:
    context = span.get_span_context()
    assert context is not None and span.start_time is not None and span.end_time is not None
    return Seen(
        span.name,
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{span.parent.span_id:016x}" if span.parent is not None else None,
        span.kind.name,
        span.start_time,
        span.end_time,
        dict(span.attributes or {}),
        span.status.status_code.name,
        [event.name for event in span.events],
        [f"{link.context.span_id:016x}" for link in span.links],
    )


class ToFile(SpanExporter):  # type: ignore[misc]  # opentelemetry is untyped here
    """Writes each span into a file at once, a line each: what is killed after that has written it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._path.open("a") as file:
            file.write("".join(json.dumps(asdict(seen(span))) + "\n" for span in spans))
        return SpanExportResult.SUCCESS


def read(path: Path) -> list[Seen]:
    return [Seen(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def tree(spans: Iterable[Seen]) -> dict[str, list[str]]:
    """{span, and which of its name it is: those under it}, to be compared at a glance. Roots are under ''."""
    spans = sorted(spans, key=lambda one: one.start)
    names: dict[str | None, str] = {None: ""}
    counts: dict[str, int] = {}
    for one in spans:
        counts[one.name] = counts.get(one.name, 0) + 1
        names[one.id] = one.name if counts[one.name] == 1 else f"{one.name} #{counts[one.name]}"
    found: dict[str, list[str]] = {}
    for one in spans:
        found.setdefault(names.get(one.parent, "unknown"), []).append(names[one.id])
    return {name: sorted(under) for name, under in found.items()}


def check_times(spans: Iterable[Seen]) -> None:
    """No span begins before the one that it is under, or ends before it begins; and attempts follow their queues."""
    by_id = {one.id: one for one in spans}
    for one in by_id.values():
        assert one.end >= one.start, one
        if one.parent in by_id:
            assert one.start >= by_id[one.parent].start - 1_500_000, (
                one,
                by_id[one.parent],
            )  # MongoDB has milliseconds
    for queue in (one for one in by_id.values() if one.name.startswith("queue ")):
        same = [
            one
            for one in by_id.values()
            if one.name == queue.name.replace("queue", "attempt")
            and (one.said("task"), one.said("attempt")) == (queue.said("task"), queue.said("attempt"))
        ]
        assert (
            not same
            or any(abs(one.start - queue.end) < 5_000_000 for one in same)
            or any(one.said("outcome") == "lost" for one in same)
        ), (queue, same)
