"""Detects whether this process traces, and creates a tracer provider for our own processes.

Our own processes are workers, and commands that start processes. Whoever sets up a tracer provider imports
OpenTelemetry's API. So if the API is not imported, nobody traces, and finding this out costs one dict lookup. The same
holds without the extra `otel`.

A provider is created from OpenTelemetry's own variables if OTEL_TRACES_EXPORTER names an exporter and the application
has not set up a provider itself. The SDK reads sampler, resource and limits from the environment. In other processes,
such as a web application, setting up a provider is up to the application.

The connections of an exporter do not survive a fork, and a pool may fork at any time. So each process creates its own
exporter when it first has spans to send.
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
"""Maximum seconds that a process waits at its end for its last spans to be sent, so that an absent collector does not
delay it."""


def install() -> None:
    """Set up a provider if the environment asks for one and none is set up. Does not raise.

    If a provider can't be created, this is logged, and the process does not trace.
    """
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
        return  # the application has set one up
    try:
        provider = TracerProvider(shutdown_on_exit=False)  # the default waits up to 30 s at exit
        for exporter in _exporters(wanted):
            provider.add_span_processor(exporter)
        set_tracer_provider(provider)
    except Exception as error:
        log.warning("no traces: %s: %s", type(error).__name__, error)
        return
    atexit.register(flush)


def flush() -> None:
    """Send the remaining spans, for at most FLUSH_TIMEOUT seconds. Called at the end of a process."""
    if tracer() is None:
        return
    from opentelemetry.trace import get_tracer_provider

    force: Callable[[], Any] | None = getattr(get_tracer_provider(), "force_flush", None)
    if force is not None:
        # In its own thread, because the SDK does not keep to its timeout parameter.
        sending = threading.Thread(target=force, name="traces", daemon=True)
        if try_start(sending):
            sending.join(FLUSH_TIMEOUT)


def _exporters(names: Sequence[str]) -> Iterator[Any]:
    """Yield a batch processor for each of these exporters. Raise LookupError for an exporter that is not installed."""
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    for name in names:
        yield BatchSpanProcessor(_in_each_process(_find(name)))


def _find(name: str) -> Callable[[], SpanExporter]:
    """Return the factory of an exporter. Raise LookupError if it is not installed."""
    for entry_name in _called(name):
        for entry_point in entry_points(group=_EXPORTERS, name=entry_name):
            make: Callable[[], SpanExporter] = entry_point.load()
            return make
    raise LookupError(
        f"no exporter {name!r} ({EXPORTER}) is installed; for otlp install opentelemetry-exporter-otlp-proto-http"
    )


def _called(name: str) -> list[str]:
    """Return the entry point names of an exporter. For `otlp` there is one per protocol."""
    if name != "otlp":
        return [name]
    protocol = next((os.environ[variable] for variable in _PROTOCOLS if os.environ.get(variable)), None)
    return [*_OTLP.values()] if protocol is None else [_OTLP.get(protocol, protocol)]


def _in_each_process(make: Callable[[], SpanExporter]) -> SpanExporter:
    """Return an exporter that each process creates for itself."""
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
"""Name of the instrumentation scope, in OpenTelemetry's terms."""

_made: tuple[Any, Tracer] | None = None
"""The provider seen last, and the tracer made from it."""


def tracer() -> Tracer | None:
    """Return the tracer that makes this process's spans, or None if no provider is set up."""
    api: Any = sys.modules.get(API)
    if api is None or not hasattr(api, "get_tracer_provider"):  # another thread is importing it
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, api.ProxyTracerProvider | api.NoOpTracerProvider):
        return None
    global _made
    if _made is None or _made[0] is not provider:
        _made = (provider, provider.get_tracer(NAME))  # cached, because this takes as long as creating a span
    return _made[1]


def is_on() -> bool:
    """Return whether this process traces."""
    return tracer() is not None


def ids() -> tuple[str, str] | None:
    """Return the ids of the current trace and span of this thread, in hexadecimal digits, or None if it is in no
    span."""
    api: Any = sys.modules.get(API)
    if api is None or not hasattr(api, "get_current_span"):
        return None
    context = api.get_current_span().get_span_context()
    return (f"{context.trace_id:032x}", f"{context.span_id:016x}") if context.is_valid else None
