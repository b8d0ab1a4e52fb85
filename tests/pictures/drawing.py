"""A dashboard drawn from a Prometheus's answers to its panels' queries: where Grafana would put the panels, with their
units, colours, legends and annotations, as far as a reader of the docs needs them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from math import isnan, nan
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import dates, pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tests.metrics.panels import concrete
from tests.metrics.prometheus import Prometheus, Series

SAID = "Drawn by the project's tests from the panels' queries and a real Prometheus's answers; not by Grafana."
WIDTH, UNIT, HEAD, MARGIN = 15.0, 0.27, 0.62, 0.09
"""Inches: of the whole, of a row of Grafana's grid, of the dashboard's title, between panels."""
COLUMNS, DOTS = 24, 84
INK, DIM, PAPER, PANEL, GRID = "#24292f", "#68707a", "#f4f5f7", "#ffffff", "#e4e7eb"
COLOURS = {"green": "#2e8b57", "orange": "#e08600", "red": "#d1343f", "blue": "#2f6fd0", "purple": "#8250df"}
CYCLE = ["#56a64b", "#e0a800", "#2f6fd0", "#e06b00", "#d1343f", "#1f8fa8", "#a352cc", "#6b7785", "#8f6b00", "#3b5b92"]


@dataclass(frozen=True)
class Window:
    """The time that is shown, in seconds since 1970, and how often it is asked for."""

    start: float
    end: float
    step: float
    rate_interval: str

    def fill(self, expr: str) -> str:
        """A query with this window's times in it."""
        return concrete(expr, rate_interval=self.rate_interval, range_=f"{round(self.end - self.start)}s")


def draw(board: dict[str, Any], prometheus: Prometheus, window: Window, file: Path) -> None:
    """Write the picture."""
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"])
    height = HEAD + rows * UNIT
    figure = pyplot.figure(figsize=(WIDTH, height), dpi=DOTS, facecolor=PAPER)
    figure.text(0.008, 1 - 0.2 / height, board["title"], size=15, weight="bold", color=INK, va="center")
    figure.text(0.008, 1 - 0.46 / height, board["description"], size=9, color=DIM, va="center")
    figure.text(0.992, 1 - 0.2 / height, SAID, size=9, color=DIM, va="center", ha="right", style="italic")
    marks = list(_marks(board, prometheus, window))
    for panel in board["panels"]:
        place = _place(panel["gridPos"], height)
        if panel["type"] == "row":
            figure.text(place[0] + 0.002, place[1] + place[3] / 2, panel["title"], size=11, weight="bold", va="center")
            continue
        _frame(figure, place, panel["title"], height)
        answers = [
            (target, _answer(prometheus, target["expr"], window, over=panel["type"] == "timeseries"))
            for target in panel["targets"]
        ]
        found = [(_called(target, series), series) for target, answer in answers for series in answer]
        drawer = {"timeseries": _graph, "stat": _stat, "bargauge": _bars}[panel["type"]]
        drawer(figure, place, panel, found, window, marks, height)
    figure.savefig(file, facecolor=PAPER, metadata={"Software": None, "Description": SAID})
    pyplot.close(figure)


def _place(at: dict[str, int], height: float) -> tuple[float, float, float, float]:
    """Left, bottom, width and height in parts of the figure."""
    bottom = height - HEAD - (at["y"] + at["h"]) * UNIT
    return (
        (at["x"] * WIDTH / COLUMNS + MARGIN / 2) / WIDTH,
        (bottom + MARGIN / 2) / height,
        (at["w"] * WIDTH / COLUMNS - MARGIN) / WIDTH,
        (at["h"] * UNIT - MARGIN) / height,
    )


def _frame(figure: Figure, place: tuple[float, float, float, float], title: str, height: float) -> None:
    left, bottom, width, tall = place
    figure.patches.append(
        pyplot.Rectangle(
            (left, bottom), width, tall, transform=figure.transFigure, facecolor=PANEL, edgecolor=GRID, zorder=-1
        )
    )
    figure.text(left + 0.005, bottom + tall - 0.13 / height, title, size=9, weight="bold", color=INK, va="center")


def _answer(prometheus: Prometheus, expr: str, window: Window, *, over: bool) -> list[Series]:
    query = window.fill(expr)
    found = (
        prometheus.ask_over(query, window.start, window.end, window.step)
        if over
        else prometheus.ask_over(query, window.end, window.end, 1)
    )
    whole = [Series(one.labels, [(at, value) for at, value in one.values if value == value]) for one in found]
    return [one for one in whole if one.values]


def _called(target: dict[str, Any], series: Series) -> str:
    legend = target.get("legendFormat", "")
    return re.sub(r"\{\{(\w+)\}\}", lambda label: series.labels.get(label[1], ""), legend).strip()


def _marks(board: dict[str, Any], prometheus: Prometheus, window: Window) -> Iterator[tuple[float, str]]:
    """When each annotation begins, and its colour."""
    for mark in board["annotations"]["list"]:
        for one in _answer(prometheus, mark["expr"], window, over=True):
            last = 0.0
            for at, value in one.values:
                if value and at - last > 2 * window.step:
                    yield at, COLOURS[mark["iconColor"]]
                last = at


def _graph(
    figure: Figure,
    place: tuple[float, float, float, float],
    panel: dict[str, Any],
    found: list[tuple[str, Series]],
    window: Window,
    marks: list[tuple[float, str]],
    height: float,
) -> None:
    left, bottom, width, tall = place
    lines = _legend_lines([name for name, _ in found], width)
    below = (0.22 + 0.16 * lines) / height
    axes = figure.add_axes((left + 0.036, bottom + below, width - 0.044, tall - below - 0.28 / height))
    _style(axes, panel, window)
    if not found:
        _nothing(axes, panel)
        return
    custom = panel["fieldConfig"]["defaults"].get("custom", {})
    stacked = custom.get("stacking", {}).get("mode") == "normal"
    times = [window.start + step * window.step for step in range(round((window.end - window.start) / window.step) + 1)]
    moments = [datetime.fromtimestamp(at) for at in times]
    under = [0.0] * len(times)
    for number, (name, series) in enumerate(sorted(found, key=lambda one: one[0])):
        colour = CYCLE[number % len(CYCLE)]
        values = {round((at - window.start) / window.step): value for at, value in series.values}
        top = [low + values.get(step, nan) for step, low in enumerate(under)]  # a gap stays one
        axes.plot(moments, top, color=colour, linewidth=1.2, label=name or panel["title"])
        axes.fill_between(moments, under, top, color=colour, alpha=0.35 if stacked else 0.06, linewidth=0)
        if stacked:
            under = [low if isnan(high) else high for low, high in zip(under, top, strict=True)]
    for at, colour in marks:
        axes.axvline(datetime.fromtimestamp(at), color=colour, linewidth=1, linestyle=(0, (3, 2)))
    most = max(value for _, series in found for _, value in series.values)
    axes.set_ylim(0, axes.get_ylim()[1] if most > 0 else 1)
    axes.legend(
        loc="lower left", bbox_to_anchor=(left + 0.004, bottom + 0.015 / height), bbox_transform=figure.transFigure,
        ncols=-(-len(found) // lines), fontsize=7, frameon=False, handlelength=1.1, columnspacing=1.1,
        handletextpad=0.4, labelcolor=INK, borderaxespad=0.1, labelspacing=0.25,
    )  # fmt: skip


def _legend_lines(names: list[str], width: float) -> int:
    """How many lines a legend takes: its columns are as wide as the widest name."""
    widest = max((len(name) for name in names), default=0) + 5
    fit = max(1, int(width * WIDTH * 15.5 / widest))
    return -(-len(names) // fit) if names else 1


def _style(axes: Axes, panel: dict[str, Any], window: Window) -> None:
    axes.set_facecolor(PANEL)
    axes.grid(color=GRID, linewidth=0.7)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(labelsize=7, colors=DIM, length=0)
    axes.set_xlim(datetime.fromtimestamp(window.start), datetime.fromtimestamp(window.end))
    axes.xaxis.set_major_locator(dates.AutoDateLocator(minticks=3, maxticks=6))
    axes.xaxis.set_major_formatter(dates.DateFormatter("%H:%M:%S" if window.end - window.start < 300 else "%H:%M"))
    unit = panel["fieldConfig"]["defaults"]["unit"]
    axes.yaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 2.5, 5, 10], integer=unit == "short"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: shown(value, unit)))


def _nothing(axes: Axes, panel: dict[str, Any]) -> None:
    axes.set_yticks([])
    text = panel["fieldConfig"]["defaults"].get("noValue", "no data")
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=DIM, size=10)


def _stat(
    figure: Figure,
    place: tuple[float, float, float, float],
    panel: dict[str, Any],
    found: list[tuple[str, Series]],
    window: Window,
    marks: list[tuple[float, str]],
    height: float,
) -> None:
    del window, marks, height
    left, bottom, width, tall = place
    defaults = panel["fieldConfig"]["defaults"]
    if not found:
        text, colour, size = defaults.get("noValue", "no data"), DIM, 12
    else:
        value = found[0][1].values[-1][1]
        text, colour, size = _mapped(value, defaults), _coloured(value, defaults), 24
    figure.text(left + width / 2, bottom + tall * 0.4, text, size=size, color=colour, ha="center", va="center")


def _bars(
    figure: Figure,
    place: tuple[float, float, float, float],
    panel: dict[str, Any],
    found: list[tuple[str, Series]],
    window: Window,
    marks: list[tuple[float, str]],
    height: float,
) -> None:
    del marks
    left, bottom, width, tall = place
    axes = figure.add_axes((left + width * 0.36, bottom + 0.08 / height, width * 0.52, tall - 0.42 / height))
    _style(axes, panel, window)
    axes.grid(visible=False)
    axes.set_xticks([])
    if not found:
        _nothing(axes, panel)
        return
    defaults = panel["fieldConfig"]["defaults"]
    ordered = sorted(((series.values[-1][1], name) for name, series in found), reverse=True)[:10]
    axes.cla()
    axes.axis("off")
    most = max(value for value, _ in ordered) or 1.0
    for line, (value, name) in enumerate(ordered):
        axes.barh(-line, value, height=0.62, color=_coloured(value, defaults))
        axes.text(-most * 0.02, -line, name or panel["title"], ha="right", va="center", size=8, color=INK)
        axes.text(value + most * 0.02, -line, shown(value, defaults["unit"]), va="center", size=8, color=INK)
    axes.set_xlim(0, most * 1.12)
    axes.set_ylim(-max(len(ordered), 5) + 0.4, 0.6)


def _mapped(value: float, defaults: dict[str, Any]) -> str:
    for mapping in defaults.get("mappings", []):
        if text := mapping["options"].get(str(round(value))):
            return str(text["text"])
    return shown(value, defaults["unit"])


def _coloured(value: float, defaults: dict[str, Any]) -> str:
    name = "green"
    for step in defaults.get("thresholds", {}).get("steps", []):
        if step["value"] is None or value >= step["value"]:
            name = step["color"]
    return COLOURS[name]


def shown(value: float, unit: str) -> str:
    """As Grafana would write it, near enough."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit == "s":
        if value == 0:
            return "0 s"
        if value < 1:
            return f"{value * 1000:.3g} ms"
        return f"{value:.3g} s" if value < 120 else f"{value / 60:.3g} min"
    number = f"{value / 1000:.3g} K" if value >= 1000 else f"{value:.0f}" if unit == "short" else f"{value:.3g}"
    return f"{number} c/s" if unit == "cps" else number
