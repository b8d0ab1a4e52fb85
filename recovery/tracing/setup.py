"""Whether this process traces, and a tracer provider for processes that are ours: workers, and commands that start
processes.

Nobody has set up a tracer provider who has not imported OpenTelemetry's API. So where it is not imported nobody traces,
and that costs one look into a dict. Without the extra `otel` it is the same.

A provider is made by OpenTelemetry's own variables, if OTEL_TRACES_EXPORTER names an exporter and the application has
set up no provider by itself. The SDK reads sampler, resource and limits from the environment. In processes that are not
ours, as of a web application, that is for whoever runs them.

What an exporter holds (a connection, a channel) does not survive a fork, and a pool forks whenever it likes. So each
process makes its exporter by itself, when it has its first spans to send.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from recovery.threads import try_start

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

log = logging.getLogger(__name__)

EXPORTER = "OTEL_TRACES_EXPORTER"
_EXPORTERS = "opentelemetry_traces_exporter"
"""Group of entry points under which distributions offer exporters."""
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_OTLP = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}

FLUSH_TIMEOUT = 1.0
"""Seconds that the end of a process waits for its last spans to be sent. A collector that is away keeps nobody."""


def install() -> None:
    """Set up a provider, if the environment asks for one and there is none yet. Does not raise: what can't be set up
    is told, and nothing is traced."""
    wanted = [name.strip() for name in os.environ.get(EXPORTER, "").split(",") if name.strip() not in ("", "none")]
    if not wanted:
        return
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.trace import set_tracer_provider
    except ImportError:
        log.warning("%s is set, and OpenTelemetry is not installed: pip install 'recovery-workers[otel]'", EXPORTER)
        return
    if tracer() is not None:
        return  # the application's own
    try:
        provider = TracerProvider(shutdown_on_exit=False)  # which would wait for half a minute
        for exporter in _exporters(wanted):
            provider.add_span_processor(exporter)
        set_tracer_provider(provider)
    except Exception as error:
        log.warning("no traces: %s: %s", type(error).__name__, error)
        return
    atexit.register(flush)


def flush() -> None:
    """Have sent what spans there are, for so long at most. At the end of a process."""
    if tracer() is None:
        return
    from opentelemetry.trace import get_tracer_provider

    force: Callable[[], Any] | None = getattr(get_tracer_provider(), "force_flush", None)
    if force is not None:
        # In a thread of its own: what the SDK takes for a timeout it does not keep to.
        sending = threading.Thread(target=force, name="traces", daemon=True)
        if try_start(sending):
            sending.join(FLUSH_TIMEOUT)


def _exporters(names: Sequence[str]) -> Iterator[Any]:
    """A batch processor for each of these exporters. Raises LookupError for one that is not installed."""
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    for name in names:
        yield BatchSpanProcessor(_in_each_process(_find(name)))


def _find(name: str) -> Callable[[], SpanExporter]:
    for one in _called(name):
        for found in entry_points(group=_EXPORTERS, name=one):
            make: Callable[[], SpanExporter] = found.load()
            return make
    raise LookupError(
        f"no exporter {name!r} ({EXPORTER}) is installed; for otlp install opentelemetry-exporter-otlp-proto-http"
    )


def _called(name: str) -> list[str]:
    """Names under which an exporter may be there: of `otlp` there is one for each protocol."""
    if name != "otlp":
        return [name]
    said = next((os.environ[one] for one in _PROTOCOLS if os.environ.get(one)), None)
    return [*_OTLP.values()] if said is None else [_OTLP.get(said, said)]


def _in_each_process(make: Callable[[], SpanExporter]) -> SpanExporter:
    """An exporter that each process makes for itself."""
    from opentelemetry.sdk.trace.export import SpanExporter as Base

    class OfProcess(Base):  # type: ignore[misc]
        _made: tuple[int, SpanExporter] | None = None

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            if self._made is None or self._made[0] != os.getpid():
                self._made = (os.getpid(), make())
            return self._made[1].export(spans)

        def shutdown(self) -> None:
            if self._made is not None and self._made[0] == os.getpid():
                self._made[1].shutdown()

    return OfProcess()


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
