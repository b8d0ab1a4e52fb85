"""Whether this process traces, and by what.

Nobody has set up a tracer provider who has not imported the API. So where it is not imported nobody traces, and that is
all that is asked: one look into a dict. Without the extra `otel` it is the same.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

API = "opentelemetry.trace"
NAME = "recovery"
"""Of the instrumentation, as OpenTelemetry calls it."""

_made: tuple[Any, Tracer] | None = None
"""The last provider, and its tracer."""


def tracer() -> Tracer | None:
    """What makes this process's spans; None if nobody has set that up."""
    api: Any = sys.modules.get(API)
    if api is None or not hasattr(api, "get_tracer_provider"):  # another thread imports it just now
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    global _made
    if _made is None or _made[0] is not provider:
        _made = (provider, provider.get_tracer(NAME))  # as long as all else that a span costs
    return _made[1]


def is_on() -> bool:
    """Whether this process traces."""
    return tracer() is not None


def ids() -> tuple[str, str] | None:
    """Ids of the trace and the span that this thread is in, in hexadecimal digits; None if it is in none."""
    api: Any = sys.modules.get(API)
    if api is None or not hasattr(api, "get_current_span"):
        return None
    context = api.get_current_span().get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else None
