"""A span while it is open, what stands for one where nobody traces, and what records keep of it: its W3C trace context,
as OpenTelemetry's own propagator writes and reads it.

Nothing here raises: a sampler or a span processor is somebody else's code, and may.
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
"""Seconds between two lines about one way in which spans can't be made."""
_told = Seldom(logging.getLogger(__name__), TELL_EVERY)

P = ParamSpec("P")
R = TypeVar("R")

FAILURES = frozenset({"failed", "retried", "lost"})
"""Outcomes of attempts that are errors. What is stale or not ready is somebody else's success, or comes again."""


def harmless(otherwise: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """What a function gives where it raises."""

    def guard(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                kind = type(error).__name__
                _told.warning("a span is not made or not whole (%s: %s); all else goes on", kind, error, about=kind)
                fallen_back: R = otherwise
                return fallen_back

        return guarded

    return guard


class Traced:
    """A span while it is open; of a process that does not trace, nothing."""

    @property
    def carried(self) -> Trace | None:
        """What records keep of it."""
        return None

    def __enter__(self) -> Traced:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        return None

    def keep_with(self, outcome: Outcome) -> Outcome:
        """An outcome with what its children come under."""
        return outcome

    def say(self, **attributes: Any) -> None:
        """Give the span attributes, each as `recovery.` and its name, `_` as dots."""

    def end_as(self, outcome: str, error_kind: str | None = None) -> None:
        """Say what came of it."""


NOTHING = Traced()


class Open(Traced):
    """A span of this process, in which what its thread does runs."""

    def __init__(self, span: Span, process_type: str | None, before: Trace | None = None) -> None:
        from opentelemetry.trace import use_span

        self._span, self._type, self._before = span, process_type, before
        # What an exception says may not be for everybody; of which kind it is, is said below.
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
            return outcome  # what the decision says keeps its children unsampled
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
    """Mark a span as one that ended with an error of this kind. Without a message."""
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


def named(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes under our names: `process_id` is `recovery.process.id`. What is None is left out."""
    return {f"recovery.{name.replace('_', '.')}": value for name, value in attributes.items() if value is not None}


@cache
def _w3c() -> TraceContextTextMapPropagator:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()


def carried(span: Span, process_type: str | None) -> Trace | None:
    """What records keep of a span, as a W3C trace context; None if it has none. Of a span that is not sampled no more
    than it takes for what comes under it not to be sampled either."""
    from opentelemetry.context import Context
    from opentelemetry.trace import set_span_in_context

    carrier: dict[str, str] = {}
    _w3c().inject(carrier, set_span_in_context(span, Context()))
    if not span.get_span_context().trace_flags.sampled:
        return trace_of({"parent": carrier.get("traceparent")})
    return trace_of({"parent": carrier.get("traceparent"), "state": carrier.get("tracestate"), "type": process_type})


def context_of(trace: Trace | None) -> Context:
    """The context that a record's spans come under; an empty one, in which they begin a trace, if it has none."""
    from opentelemetry.context import Context

    if trace is None:
        return Context()
    carrier = {"traceparent": trace.parent} | ({"tracestate": trace.state} if trace.state else {})
    return _w3c().extract(carrier, Context())
