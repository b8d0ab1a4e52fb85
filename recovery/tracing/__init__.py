"""OpenTelemetry traces: one for each process, from its start to its end.

    start order ── queue order
                ├─ attempt order ── queue pack
                │                ├─ attempt pack ── apply pack
                │                └─ apply order
                └─ …

`spans` says what spans there are; the engine calls it where it counts metrics. `opened` is a span while it is open, and
maps it to the `Trace` that is kept in records, and back: by it what other processes do later comes under it. `setup`
knows whether this process traces at all, and makes a provider of the environment's OTEL_* variables for processes that
are ours. Where nobody has set up a tracer provider nothing of OpenTelemetry is imported, and `opened.NOTHING` takes
every call.
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
