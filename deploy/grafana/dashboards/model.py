"""Dashboards as plain data: a board has sections, a section has panels, and a panel has queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

TOP = 10
"""Maximum series of a panel whose labels have many values: about as many colours as people can tell apart."""


class Look(StrEnum):
    """How a panel shows its values."""

    GRAPH = "graph"
    """Lines over time."""
    STACK = "stack"
    """Areas over time, stacked: their sum means something."""
    STAT = "stat"
    """One large figure: the current value."""
    BARS = "bars"
    """A bar for each series, of the current value or of the whole time range."""


class Unit(StrEnum):
    """Units, by Grafana's ids."""

    SECONDS = "s"
    NUMBER = "short"
    PER_SECOND = "cps"
    SHARE = "percentunit"
    """A fraction from 0 to 1."""


@dataclass(frozen=True)
class Query:
    """A PromQL query, and the name of its series. Grafana replaces `{{label}}` by the label's value."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Level:
    """A colour for values from this value on. Values below the first level are green."""

    value: float
    colour: str


def orange(value: float) -> Level:
    """Return a level that somebody should look at when there is time."""
    return Level(value, "orange")


def red(value: float) -> Level:
    """Return a level that somebody should look at now."""
    return Level(value, "red")


@dataclass(frozen=True)
class Panel:
    """A panel. Its `description` says in plain English what it shows and what is normal."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    to: str
    """The uid of the dashboard with details. Each panel links to one."""
    look: Look = Look.GRAPH
    width: int = 8
    """Columns of the row's 24."""
    levels: tuple[Level, ...] = ()
    below: str = "green"
    """The colour below the first level: `red` if low values are bad."""
    texts: dict[int, str] = field(default_factory=dict)
    """Texts that are shown instead of these values."""
    nothing: str = ""
    """Text that is shown if there is no data, because nothing has happened yet."""
    runbook: str = ""
    """The alert whose section of docs/runbooks.md says what to do."""


@dataclass(frozen=True)
class Section:
    """A row of panels with a title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """A choice above the panels: values of a label. Queries use it as `label=~"$name"`."""

    name: str
    label: str
    values: str
    """The values, as Grafana's `label_values(metric, label)`."""


TYPE = Variable("type", "Process type", "label_values(recovery_processes, type)")
ACTOR = Variable("actor", "Actor", "label_values(recovery_queued_unserved, actor)")
KIND = Variable("kind", "Kind of operation", "label_values(recovery_operations_open, kind)")


@dataclass(frozen=True)
class Board:
    """A dashboard. Its `uid` is part of its address, /d/uid, and never changes."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Annotation:
    """A mark over all graphs of a dashboard while a query has a value other than 0."""

    name: str
    expr: str
    colour: str
    title: str
    text: str


@dataclass(frozen=True)
class Site:
    """Addresses for links. There is no link to an empty address."""

    docs: str = ""
    """The address at which these docs' pages are read."""
    console: str = ""


ANNOTATIONS = (
    Annotation(
        "Deployments",
        # The mark lasts five minutes after the first worker of a version was seen.
        "count by (version) (recovery_build_info) unless count by (version) (recovery_build_info offset 5m)",
        "blue",
        "Deployment",
        "Workers of version {{version}}",
    ),
    Annotation(
        "Operations",
        'max by (kind) (recovery_operations_open{state=~"planning|admitting|running"}) > 0',
        "purple",
        "Operation",
        "{{kind}} under way",
    ),
)


def top(expr: str) -> str:
    """Return a query for the largest of many series."""
    return f"topk({TOP}, {expr})"


def rate(counter: str, by: str = "", where: str = "") -> str:
    """Return a query for a counter's rate per second, summed up over workers."""
    return f"sum{_by(by)}(rate({_filtered(counter, where)}[$__rate_interval]))"


def increase(counter: str, by: str = "", where: str = "") -> str:
    """Return a query for a counter's increase in the time range."""
    return f"sum{_by(by)}(increase({_filtered(counter, where)}[$__range]))"


def quantile(q: float, histogram: str, by: str = "", where: str = "") -> str:
    """Return a query for a quantile of a histogram."""
    buckets = _filtered(f"{histogram}_bucket", where)
    grouped = _by(f"le, {by}" if by else "le")
    return f"histogram_quantile({q}, sum{grouped}(rate({buckets}[$__rate_interval])))"


def largest(gauge: str, by: str = "", where: str = "") -> str:
    """Return a query for the maximum of a gauge that is read at scrapes. All workers report nearly the same value."""
    return f"max{_by(by)}({_filtered(gauge, where)})"


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""


def _filtered(metric: str, where: str) -> str:
    return f"{metric}{{{where}}}" if where else metric
