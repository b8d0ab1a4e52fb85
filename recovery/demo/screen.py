"""The output of a demo: a live panel on a terminal, lines elsewhere, and a table at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from recovery.demo.demo_report import Counts, DemoReport

PLAIN_EVERY = 2.0
"""Minimum seconds between two lines without a terminal."""


@dataclass(slots=True)
class DemoFigures:
    """How far a demo is."""

    processes: int = 0
    finished: int = 0
    tasks: int = 0
    done: int = 0
    executions: int = 0
    workers: int = 0
    kills: int = 0
    faults: int = 0
    counts: Counts = field(default_factory=Counts)


class Screen:
    """Shows a demo while the block runs."""

    def __init__(self, console: Console, title: str) -> None:
        self._console, self._title = console, title
        self._began_at = self._shown_at = time.monotonic()
        self._live = Live(console=console, refresh_per_second=8, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def say(self, text: str) -> None:
        """Show what is being done, before there are figures."""
        if self._live:
            self._live.update(Panel(Text(text, style="dim"), title=self._title, title_align="left"))
        else:
            self._console.print(text, soft_wrap=True)

    def struck(self, what: str) -> None:
        """Print a fault when it begins. May be called from any thread."""
        self.note(f"{time.monotonic() - self._began_at:5.1f} s  fault: {what}")

    def note(self, text: str) -> None:
        """Print a text that stays on the screen."""
        self._console.print(text, soft_wrap=True)

    def show(self, standing: DemoFigures) -> None:
        """Show how far the demo is. May be called often."""
        now = time.monotonic()
        if self._live:
            self._live.update(Panel(self._panel(standing, now), title=self._title, title_align="left"))
        elif now >= self._shown_at + PLAIN_EVERY:
            self._shown_at = now
            self._console.print(self._line(standing, now), soft_wrap=True)

    def _line(self, figures: DemoFigures, now: float) -> str:
        faults = f"faults {figures.faults}  " if figures.faults else ""
        return (
            f"{now - self._began_at:5.1f} s  processes {figures.finished}/{figures.processes}  "
            f"tasks {figures.done}/{figures.tasks}  kills {figures.kills}  {faults}"
            f"requeued {figures.counts.requeued}  stale rejected {figures.counts.stale_rejected}"
        )

    def _panel(self, figures: DemoFigures, now: float) -> RenderableType:
        bars = Table.grid(padding=(0, 2))
        for name, done, total in (
            ("processes", figures.finished, figures.processes),
            ("tasks", figures.done, figures.tasks),
        ):
            bars.add_row(name, ProgressBar(total=total or 1, completed=done, width=40), f"{done}/{total}")
        text = Text.assemble(
            ("kills ", "dim"), (f"{figures.kills}", "bold red"),
            ("   faults ", "dim"), (f"{figures.faults}", "bold red"),
            ("   requeued ", "dim"), (f"{figures.counts.requeued}", "bold yellow"),
            ("   stale rejected ", "dim"), (f"{figures.counts.stale_rejected}", "bold yellow"),
            ("   workers ", "dim"), f"{figures.workers}",
            ("   elapsed ", "dim"), f"{now - self._began_at:.0f} s",
        )  # fmt: skip
        return Group(bars, "", text)


def summary(report: DemoReport) -> RenderableType:
    """Return the table at the end, and the verdict."""
    table = Table(box=None, show_header=False, padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(justify="right")
    table.add_column(style="dim")
    extra = report.executions - report.tasks
    for name, value, remark in (
        ("processes finished", f"{report.finished} of {report.processes}", f"in {report.wall_seconds:.1f} s"),
        ("tasks", f"{report.tasks}", f"{report.executions} completed executions" if extra else "each executed once"),
        ("workers killed", f"{report.kills}", f"with all their processes; seed {report.seed}"),
        ("tasks requeued", f"{report.requeued}", _lag(report)),
        *(
            [("tried again", f"{report.retried}", "attempts that failed with a transient error")]
            if report.retried
            else []
        ),
        (
            "stale rejected",
            f"{report.stale_rejected}",
            f"stale messages, and {report.stale_results} stale results, discarded",
        ),
        *([("unrecoverable", f"{len(report.unrecoverable)}", _why(report))] if report.unrecoverable else []),
        ("lost", f"{report.lost}", "accepted results that are missing"),
        ("accepted twice", f"{report.accepted_twice}", "tasks with two results that were used"),
    ):
        table.add_row(name, Text(value, style="bold"), remark)
    for name, counts in (("faults", report.faults), ("repairs", report.repairs)):
        if counts:
            breakdown = ", ".join(f"{kind.replace('_', ' ').lower()} {count}" for kind, count in counts.items())
            table.add_row(name, Text(f"{sum(counts.values())}", style="bold"), breakdown)
    if report.drill is not None:
        table.add_row("drill", Text(f"{report.drill['compared']}", style="bold"), _drilled(report.drill))
    if report.good:
        subject = "Every other process" if report.unrecoverable else "Every process"
        verdict = Text(f"{subject} finished; nothing was lost, nothing accepted twice.", style="bold green")
    else:
        verdict = Text("\n".join(report.problems), style="bold red")
    return Group(table, "", verdict, *(Text(note, style="yellow") for note in report.notes))


def _drilled(drill: Mapping[str, Any]) -> str:
    longest = ", ".join(
        f"{step['step'].replace('_', ' ')} {step['longest']:.1f} s"
        for step in drill["steps"]
        if step["longest"] is not None
    )
    verb = "agree with" if not drill["disagreements"] else "don't all agree with"
    return f"times that {verb} the ledger; the longest: {longest}"


def _why(report: DemoReport) -> str:
    reasons = Counter(reason.partition(":")[0] for reason in report.unrecoverable.values())
    return ", ".join(f"{reason}: {count}" for reason, count in reasons.most_common(3))


def _lag(report: DemoReport) -> str:
    if report.lag_p50 is None or report.lag_p99 is None:
        return ""
    return f"p50 {report.lag_p50:.2f} s, p99 {report.lag_p99:.2f} s late"
