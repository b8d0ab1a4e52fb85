"""Run all benchmarks, or those named: `make bench`, `make bench ONLY="requeue lag"`, `python -m tests.bench [NAME…]`.

Prints a table and writes bench.json. Ends with 1 if a bar is not met, and names the rows.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console

from tests.bench.one import measure_one
from tests.bench.rows import Row, as_table, row, unmet

ALL = (
    "reads",
    "messages",
    "requeue",
    "drain",
    "lag",
    "storm",
    "busy_operators",
    "scan_cost",
    "process_scan_cost",
    "throughput",
    "one_task",
    "fan_out",
    "starts",
    "mix",
    "idle",
    "heartbeats",
    "waiting",
    "redis_lost",
    "scanners",
    "kill",
    "noticed",
    "wide",
    "stale",
    "sweep",
    "sweep_scale",
    "search",
    "millions",
)


def main(names: list[str]) -> int:
    """Run them; the exit code."""
    if unknown := set(names) - set(ALL):
        sys.exit(f"no benchmark is named {', '.join(sorted(unknown))}; there are: {', '.join(ALL)}")
    console = Console(width=160)
    rows = measure(names or ALL, console)
    console.print(as_table(rows))
    Path("bench.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    missed = unmet(rows)
    for text in missed:
        console.print(text, style="red", soft_wrap=True)
    return 1 if missed else 0


def measure(names: Sequence[str], console: Console) -> list[Row]:
    """Run these benchmarks, one after the other, and show what each gave."""
    rows = list[Row]()
    for name in names:
        console.print(f"{name} …")
        # A process of its own for each: drivers keep connections to servers that the next one has not.
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            try:
                found = process.submit(measure_one, name).result()
            except Exception as error:  # the others are measured all the same
                traceback.print_exc()
                found = [row(f"{name}: errors", 1, "<= 0", "", f"{type(error).__name__}: {error}"[:200])]
        console.print(as_table(found))
        rows += found
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
