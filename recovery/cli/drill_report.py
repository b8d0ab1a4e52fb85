"""What a drill found, as `recovery drill` prints it."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from recovery.cli.output import console, line, print_json
from recovery.cli.text_tables import Cell, print_rows
from recovery.drill.drill_report import Measured, Report

STYLES = {"ok": "green", "late": "bold yellow", "failed": "bold red"}
RIGHT = ("probes", "median", "longest", "promised")
_HOW = {"late": "came late", "failed": "did not come"}


def show(report: Report, *, json: bool) -> None:
    """Print the table of a drill, or its JSON."""
    if json:
        print_json("drill", report.as_dict())
        sys.stdout.flush()
        return
    out = console()
    print_rows(out, ["step", *RIGHT, "outcome", "made of"], map(_row, report.steps), RIGHT)
    out.print()
    for text, style in _remarks(report):
        out.print(text, style=style)


def _row(one: Measured) -> list[Cell]:
    found = one.as_dict()
    return [
        _words(one.step),
        f"{len(one.probes):,}",
        _seconds(found["median"]),
        _seconds(found["longest"]),
        _seconds(one.promise.seconds),
        line((found["outcome"], STYLES[found["outcome"]])),
        one.promise.why,
    ]


def _remarks(report: Report) -> list[tuple[str, str]]:
    """What is told under the table, and in which style."""
    took = [one for one in report.workers if one.canaries]
    found = [(f"{len(took)} of {len(report.workers)} workers took part", "")]
    for worker in report.workers:
        if not worker.serves:
            found.append((f"{worker.name} does not serve recovery.canary (RECOVERY_CANARY is off)", "yellow"))
        elif not worker.canaries:
            found.append((f"{worker.name} took no canary: are its slots busy?", "yellow"))
        elif worker.killed:
            found.append((f"{worker.name} was killed; start it again, if nothing else does", "yellow"))
    found += [(note, "yellow") for note in report.notes]
    if report.left:
        were = "canary was not removed; a later drill removes it"
        if report.left > 1:
            were = "canaries were not removed; a later drill removes them"
        found.append((f"{report.left} {were}", "yellow"))
    for one in report.steps:
        if said := _broken(one.as_dict()):
            found.append((f"{_words(one.step)}: {said}", "bold red"))
    verdict = ("Every promise was kept.", "bold green") if report.good else ("A promise was broken.", "bold red")
    return [*found, verdict]


def _broken(step: dict[str, object]) -> str:
    """How a promise was broken; empty if it was not."""
    counts = [f"{step[what]} of {step['probes']} {said}" for what, said in _HOW.items() if step[what]]
    return ", ".join(counts)


def show_line(report: Report) -> None:
    """Print one drill of many, in a line."""
    now = f"{datetime.now(UTC):%H:%M:%S}"
    told = [f"{_words(one.step)} {_seconds(one.as_dict()['longest'])}" for one in report.steps]
    broken = [f"{_words(one.step)}: {said}" for one in report.steps if (said := _broken(one.as_dict()))]
    style = STYLES["ok"] if report.good else STYLES["failed"]
    console().print(line(f"{now}  ", ("kept" if report.good else "broken", style), f"  {', '.join(told + broken)}"))


def _words(step: str) -> str:
    return step.replace("_", " ")


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{max(0.0, seconds) * 1000:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"
