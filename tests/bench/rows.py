"""What a benchmark tells: rows of a table, each against its bar."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

OPERATORS = {">=": operator.ge, "<=": operator.le}


class Row(TypedDict):
    """One measured value. `met` is None where there is no bar."""

    name: str
    value: float
    bar: str
    met: bool | None
    unit: str
    detail: str


def row(name: str, value: float, bar: str, unit: str, detail: str = "") -> Row:
    """A row; `bar` is like '>= 15', or empty."""
    met: bool | None = None
    if bar:
        sign, _, number = bar.partition(" ")
        met = bool(OPERATORS[sign](value, float(number)))
    return Row(name=name, value=round(value, 4), bar=bar, met=met, unit=unit, detail=detail)


def ratio_row(name: str, ratios: Sequence[float], bar: str, detail: str = "") -> Row:
    """The median of ratios measured pair by pair, with their range."""
    spread = f"range {min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)}"
    return row(name, statistics.median(ratios), bar, "ratio", f"{spread}; {detail}" if detail else spread)


def medians(found: Mapping[str, Sequence[float]], unit: str) -> str:
    """What stands beside a ratio: the median of each side, as the ratio is the median of its pairs."""
    each = ", ".join(f"{name} {_rounded(statistics.median(values))} {unit}" for name, values in found.items())
    return f"{each} (medians of {max(map(len, found.values()))})"


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def unmet(rows: Sequence[Row]) -> list[str]:
    """The rows whose bar is not met, in words."""
    return [f"not met: {row['name']} is {row['value']:,.2f}, not {row['bar']}" for row in rows if row["met"] is False]


def as_table(rows: Sequence[Row]) -> Any:
    """The rows as a table for a terminal."""
    from rich.table import Table

    table = Table("benchmark", "value", "bar", "met", "detail")
    for one in rows:
        met = {True: "[green]yes", False: "[red]no", None: ""}[one["met"]]
        table.add_row(one["name"], f"{one['value']:,.2f} {one['unit']}", one["bar"], met, one["detail"])
    return table
