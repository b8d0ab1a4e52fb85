"""Spans as records keep them: the W3C trace context, as OpenTelemetry's own propagator writes and reads it."""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.trace import Span, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from recovery.records import Trace
from recovery.records.trace import trace_of

_W3C = TraceContextTextMapPropagator()


def carried(span: Span, process_type: str | None) -> Trace | None:
    """What records keep of a span; None if it has no context. Of one that is not sampled no more than it takes for what
    comes under it not to be sampled either."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span, Context()))
    if not span.get_span_context().trace_flags.sampled:
        return trace_of({"parent": carrier.get("traceparent")})
    return trace_of({"parent": carrier.get("traceparent"), "state": carrier.get("tracestate"), "type": process_type})


def context_of(trace: Trace | None) -> Context:
    """The context that a record's spans come under; an empty one, in which they begin a trace, if it has none."""
    if trace is None:
        return Context()
    carrier = {"traceparent": trace.parent} | ({"tracestate": trace.state} if trace.state else {})
    return _W3C.extract(carrier, Context())
