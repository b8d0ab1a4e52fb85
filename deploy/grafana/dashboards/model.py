"""What a dashboard is made of, as plain data: a board of sections of panels of queries."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

TOP = 10
"""Series of one panel where their number has no bound: about as many colours as can be told apart."""


class Look(StrEnum):
    """How a panel shows its answers."""

    GRAPH = "graph"
    """Lines over time."""
    STACK = "stack"
    """Areas over time, one upon the other: their sum means something."""
    STAT = "stat"
    """One large figure, of now."""
    BARS = "bars"
    """A bar for each series, of now or over the whole time shown."""


class Unit(StrEnum):
    """Grafana's ids of units."""

    SECONDS = "s"
    NUMBER = "short"
    PER_SECOND = "cps"
    SHARE = "percentunit"
    """From 0 to 1."""


@dataclass(frozen=True)
class Query:
    """PromQL, and what each of its series is called: Grafana puts the label's value for `{{label}}`."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Level:
    """From this value on a figure has this colour; below the first level it is green."""

    value: float
    colour: str


def orange(value: float) -> Level:
    """Somebody should look when there is time."""
    return Level(value, "orange")


def red(value: float) -> Level:
    """Somebody should look now."""
    return Level(value, "red")


@dataclass(frozen=True)
class Panel:
    """One panel. `description` says in plain English what it shows and what is normal."""

    title: str
    description: str
    unit: Unit
    queries: tuple[Query, ...]
    to: str
    """The uid of the dashboard that tells more: each panel links to it."""
    look: Look = Look.GRAPH
    width: int = 8
    """Of a row's 24."""
    levels: tuple[Level, ...] = ()
    below: str = "green"
    """The colour below the first level: `red` where little is what is bad."""
    texts: dict[int, str] = field(default_factory=dict)
    """What is shown for a value instead of it."""
    nothing: str = ""
    """What is shown where there is no data, since nothing happened yet."""
    runbook: str = ""
    """The alert whose section of docs/runbooks.md says what to do."""


@dataclass(frozen=True)
class Section:
    """A row with a title."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True)
class Variable:
    """Something to choose above the panels: the values of a label. A query takes it as `label=~"$name"`."""

    name: str
    label: str
    values: str
    """Grafana's `label_values(metric, label)`."""


TYPE = Variable("type", "Process type", "label_values(recovery_processes, type)")
ACTOR = Variable("actor", "Actor", "label_values(recovery_queued_unserved, actor)")
KIND = Variable("kind", "Kind of operation", "label_values(recovery_operations_open, kind)")


@dataclass(frozen=True)
class Board:
    """A dashboard. `uid` is in its address, /d/uid, and never changes."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Annotation:
    """Something that is drawn over all graphs of a dashboard while a query has a value that is not 0."""

    name: str
    expr: str
    colour: str
    title: str
    text: str


@dataclass(frozen=True)
class Site:
    """Where else to look. What is not given has no link."""

    docs: str = ""
    """The address under which these docs' pages are read."""
    console: str = ""


ANNOTATIONS = (
    Annotation(
        "Deployments",
        # For five minutes from when the first worker of a version is seen.
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
    """The largest of many series."""
    return f"topk({TOP}, {expr})"


def rate(counter: str, by: str = "", where: str = "") -> str:
    """How often a second something was counted, summed up over workers."""
    return f"sum{_by(by)}(rate({_chosen(counter, where)}[$__rate_interval]))"


def increase(counter: str, by: str = "", where: str = "") -> str:
    """How often something was counted in the time that is shown."""
    return f"sum{_by(by)}(increase({_chosen(counter, where)}[$__range]))"


def quantile(q: float, histogram: str, by: str = "", where: str = "") -> str:
    """Of what a histogram counted."""
    buckets = _chosen(f"{histogram}_bucket", where)
    grouped = _by(f"le, {by}" if by else "le")
    return f"histogram_quantile({q}, sum{grouped}(rate({buckets}[$__rate_interval])))"


def largest(gauge: str, by: str = "", where: str = "") -> str:
    """Of what was asked for scrapes: the same from every worker, but for a moment."""
    return f"max{_by(by)}({_chosen(gauge, where)})"


def _by(labels: str) -> str:
    return f" by ({labels}) " if labels else ""


def _chosen(metric: str, where: str) -> str:
    return f"{metric}{{{where}}}" if where else metric
