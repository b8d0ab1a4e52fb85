"""What a process had come to before it was restarted, as `recovery show --history` has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from recovery.records import Life, Process


def history_entry(life: Life) -> dict[str, Any]:
    """One epoch as JSON has it."""
    return {
        "epoch": life.epoch,
        "state": life.state,
        "error": f"{life.error.kind}: {life.error.message}" if life.error is not None else None,
        "restarted_at": life.ended_at,
        "restarted_from": list(life.tasks),
        "by": life.by,
        "reason": life.reason,
        "operation": life.operation,
    }


def print_history(out: Console, process: Process) -> None:
    """All epochs that are kept, the oldest first."""
    if not process.lives:
        out.print("never restarted from a task, nor from the beginning")
        return
    for life in process.lives:
        what = f"operation {life.operation}, " if life.operation is not None else ""
        error = f", {life.error.kind}: {life.error.message}" if life.error is not None else ""
        out.print(f"epoch {life.epoch}  was {life.state}{error}")
        at = f"{life.ended_at:%Y-%m-%d %H:%M:%S} UTC"
        out.print(f"  restarted {at} from {', '.join(life.tasks)} by {what}{life.by}: {life.reason}")
