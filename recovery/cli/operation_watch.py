"""A live bar of an operation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from recovery.cli.operation_lines import progress_line

if TYPE_CHECKING:
    from recovery.engine import Resources
    from recovery.records import Operation

LOOK_EVERY = 0.5
"""Seconds: each look reads some hundred small records, of ranges. Results are counted more rarely."""


def follow(
    resources: Resources, number: int, *, quiet: bool = False, until: Callable[[], bool] = lambda: False
) -> Operation:
    """Follow it until nobody works at it, or `until` says so; as it is then. On a terminal a bar; else a line when much
    has changed."""
    from rich.progress import BarColumn, Progress, TextColumn

    from recovery import operations
    from recovery.cli.output import messages

    out, watching = messages(), operations.Watching(resources)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[line]}"))
    told = -1.0
    with Progress(*columns, console=out, disable=quiet or not out.is_terminal, transient=True) as bar:
        task = bar.add_task(f"operation {number}", total=1.0, line="")
        while True:
            found = watching.look(operations.find(resources, number))
            bar.update(task, completed=found.share, line=progress_line(found))
            if not quiet and not out.is_terminal and abs(found.share - told) >= 0.1:
                told = found.share
                out.print(f"operation {number}, {found.operation.state.value}: {progress_line(found)}")
            if found.operation.recovery_time is None or until():
                return found.operation
            time.sleep(LOOK_EVERY)
