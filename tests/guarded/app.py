"""What runs on guarded servers."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from recovery import Promise, Recovery

app = Recovery()

if "SPANS" in os.environ:
    provider = TracerProvider(shutdown_on_exit=False)
    spans = Path(os.environ["SPANS"]).open("a")  # noqa: SIM115 - for as long as the process lives
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=spans)))
    trace.set_tracer_provider(provider)


@app.actor()
def double(number: int) -> int:
    return 2 * number


@app.actor(retry=None)
def refuse(reason: str) -> None:
    raise ValueError(reason)


@app.actor(retry=None)
def blab() -> None:
    """What no application should do: it logs the address of a server, tells it to its trace, and another stands in its
    error."""
    trace.get_current_span().set_attribute("address", os.environ["RECOVERY_BROKER_URL"])
    logging.getLogger(__name__).warning("connected to %s", os.environ["RECOVERY_BROKER_URL"])
    raise ValueError(os.environ["RECOVERY_MONGO_URI"])


@app.actor()
def crash(once: str) -> str:
    """Takes its pool process with it, the first time."""
    if not Path(once).exists():
        Path(once).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "went on"


@app.process()
def twice(number: int) -> Promise:
    return double.schedule(double.schedule(number))


@app.process()
def broken(reason: str) -> Promise:
    return refuse.schedule(reason)


@app.process()
def blabbing() -> Promise:
    return blab.schedule()


@app.process()
def crashing(once: str) -> Promise:
    return crash.schedule(once)
