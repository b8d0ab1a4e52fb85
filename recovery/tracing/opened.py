"""Open spans, their stand-in if nobody traces, and the W3C trace context that records keep of a span.

OpenTelemetry's own propagator writes and reads the trace context. Nothing here raises, because a sampler or a span
processor is other people's code and may raise.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cache, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from recovery.log_lines import Seldom
from recovery.records import Outcome, Trace
from recovery.records.record import trace_of

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

TELL_EVERY = 300.0
"""Minimum seconds between two log lines about the same kind of error in spans."""
_told = Seldom(logging.getLogger(__name__), TELL_EVERY)

P = ParamSpec("P")
R = TypeVar("R")

FAILURES = frozenset({"failed", "retried", "lost"})
"""Outcomes of attempts that mark a span as an error. A stale result means another attempt succeeded; a task that is not
ready runs later."""


def harmless(otherwise: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator: if the function raises, the error is logged and `otherwise` is returned."""

    def guard(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                error_type = type(error).__name__
                _told.warning("a span is missing or incomplete (%s: %s)", error_type, error, about=error_type)
                fallback: R = otherwise
                return fallback

        return guarded

    return guard


class Traced:
    """An open span, or, if this process does not trace, a stand-in that does nothing."""

    @property
    def carried(self) -> Trace | None:
        """Return the trace context that records keep of this span."""
        return None

    def __enter__(self) -> Traced:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        return None

    def keep_with(self, outcome: Outcome) -> Outcome:
        """Return the outcome with the trace context for its children."""
        return outcome

    def say(self, **attributes: Any) -> None:
        """Set span attributes, each named `recovery.` and its name with dots instead of underscores."""

    def end_as(self, outcome: str, error_kind: str | None = None) -> None:
        """Record the outcome of the attempt or apply."""


NOTHING = Traced()


class Open(Traced):
    """A span of this process. While it is entered, it is the current span of its thread."""

    def __init__(self, span: Span, process_type: str | None, before: Trace | None = None) -> None:
        from opentelemetry.trace import use_span

        self._span, self._type, self._before = span, process_type, before
        # An exception's message may be confidential, so only its type is recorded, in `__exit__`.
        self._scope: AbstractContextManager[Span] = use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        )

    @property
    def carried(self) -> Trace | None:
        return self._carried()

    @harmless(None)
    def _carried(self) -> Trace | None:

        return carried(self._span, self._type)

    def __enter__(self) -> Traced:
        self._enter()
        return self

    @harmless(None)
    def _enter(self) -> None:
        self._scope.__enter__()

    @harmless(None)
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        if kind is not None:
            fails(self._span, kind.__name__)
        self._scope.__exit__(kind, error, stack)

    def keep_with(self, outcome: Outcome) -> Outcome:
        trace = self.carried
        if trace is None or not (trace.is_sampled or self._before is None):
            return outcome  # the decision's own trace context keeps its children unsampled
        return outcome.evolve(trace=trace)

    @harmless(None)
    def say(self, **attributes: Any) -> None:
        self._span.set_attributes(named(attributes))

    @harmless(None)
    def end_as(self, outcome: str, error_kind: str | None = None) -> None:
        self.say(outcome=outcome)
        if error_kind is not None or outcome in FAILURES:
            fails(self._span, error_kind or outcome)


def fails(span: Span, kind: str) -> None:
    """Mark a span as ended with an error of this kind, without a message."""
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


def named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes under our names: `process_id` becomes `recovery.process.id`. None values are left out."""
    return {f"recovery.{name.replace('_', '.')}": value for name, value in attributes.items() if value is not None}


@cache
def _w3c() -> TraceContextTextMapPropagator:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def carried(span: Span, process_type: str | None) -> Trace | None:
    """Return the W3C trace context that records keep of a span, or None if it has none.

    For an unsampled span, it holds only what keeps later spans unsampled too.
    """
    from opentelemetry.context import Context
    from opentelemetry.trace import set_span_in_context

    carrier: dict[str, str] = {}
    _w3c().inject(carrier, set_span_in_context(span, Context()))
    if not span.get_span_context().trace_flags.sampled:
        return trace_of({"parent": carrier.get("traceparent")})
    return trace_of({"parent": carrier.get("traceparent"), "state": carrier.get("tracestate"), "type": process_type})


def context_of(trace: Trace | None) -> Context:
    """Return the context in which a record's spans are created. Without a trace it is empty, so that they begin a new
    one."""
    from opentelemetry.context import Context

    if trace is None:
        return Context()
    carrier = {"traceparent": trace.parent} | ({"tracestate": trace.state} if trace.state else {})
    return _w3c().extract(carrier, Context())
