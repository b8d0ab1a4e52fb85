"""OpenTelemetry traces: one trace per process, from its start to its end.

    start order ── queue order
                ├─ attempt order ── queue pack
                │                ├─ attempt pack ── apply pack
                │                └─ apply order
                └─ …

`spans` defines the spans; the engine calls it where it counts metrics. `opened` is an open span. It is converted to the
`Trace` that is stored in records, and back, so that later steps in other processes become its children. `setup` detects
whether this process traces at all. For our own processes it creates a tracer provider from the OTEL_* environment
variables. Without a tracer provider nothing of OpenTelemetry is imported, and `opened.NOTHING` accepts every call.
"""

from recovery.tracing.opened import NOTHING, Traced
from recovery.tracing.setup import flush, ids, install, is_on
from recovery.tracing.spans import applying, attempt, event, repaired, repairing, starting

__all__ = [
    "NOTHING",
    "Traced",
    "applying",
    "attempt",
    "event",
    "flush",
    "ids",
    "install",
    "is_on",
    "repaired",
    "repairing",
    "starting",
]
