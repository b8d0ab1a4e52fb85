"""Run all benchmarks, or those named: `python -m tests.bench [NAME…]`. Prints a table, writes bench.json."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import uuid
from pathlib import Path

from rich.console import Console

from recovery.settings import load
from recovery.stack import Stack
from tests.bench.rows import Row, as_table

ALL = (
    "reads",
    "messages",
    "requeue",
    "drain",
    "lag",
    "storm",
    "scan_cost",
    "process_scan_cost",
    "throughput",
    "kill",
    "wide",
    "stale",
    "sweep",
)
WITH_WORKERS = ("lag", "storm", "throughput", "kill", "wide", "stale")


def main(names: list[str]) -> None:
    if unknown := set(names) - set(ALL):
        sys.exit(f"no benchmark is named {', '.join(sorted(unknown))}; there are: {', '.join(ALL)}")
    console, rows = Console(width=160), list[Row]()
    with tempfile.TemporaryDirectory(prefix="recovery-bench-") as folder:
        for name in names or ALL:
            # A server of its own for each: what one leaves in caches and logs is not the next one's cost.
            with Stack(Path(folder) / name, mongo_cache_gb=4) as stack:
                console.print(f"{name} …")
                settings = load(
                    mongo_uri=stack.mongo_uri, broker_url=stack.broker_url, database=f"bench_{uuid.uuid4().hex[:8]}"
                )
                module = importlib.import_module(f"tests.bench.{name}")
                found = module.run(stack, settings) if name in WITH_WORKERS else module.run(settings)
                console.print(as_table(found))
                rows += found
    console.print(as_table(rows))
    Path("bench.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


main(sys.argv[1:])
