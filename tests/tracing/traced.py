"""An application that sets up its own traces, into the file of SPANS; its actors leave signs in the folder of SIGNS."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from recovery import Backoff, Recovery
from tests.tracing.exported import ToFile

app = Recovery()
tracer = trace.get_tracer("shop")

if "SPANS" in os.environ:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(ToFile(Path(os.environ["SPANS"]))))
    trace.set_tracer_provider(provider)


def _first_time(name: str) -> bool:
    try:
        (Path(os.environ["SIGNS"]) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


@app.actor(retry=Backoff(initial=0.3, maximum=0.3))  # longer than a scan: else it waits in its slot
def weigh(item: str) -> int:
    with tracer.start_as_current_span("on the scales"):
        if _first_time("weighed"):
            raise ConnectionError("the scales are away")
    logging.getLogger("shop").info("weighed %s", item)
    return len(item)


@app.actor()
def pack(item: str, _weight: int) -> str:
    if _first_time(f"packs-{os.getpid()}") and len(list(Path(os.environ["SIGNS"]).glob("packs-*"))) == 1:
        time.sleep(60)  # until it is killed
    return item


@app.process()
def order(item: str) -> Any:
    return pack.schedule(item, weigh.schedule(item))
