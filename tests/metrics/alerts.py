"""The alert rules of deploy/prometheus, and as much of PromQL as those need that look at one moment of what workers
export today: so what a cluster's alerts say is tested where there is no Prometheus as well, and as quickly."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml
from prometheus_client import Metric

from tests.docs.blocks import ROOT

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[tuple[str, Labels], float]

RULES = ROOT / "deploy" / "prometheus" / "rules" / "recovery.yml"
BEYOND = {"RecoveryNotScraped", "RecoveryVersionsMixed", "RecoveryQueueWaits", "RecoveryOutOfReach"}
"""Look at one moment, and are not understood here: Prometheus's own tests are enough for them."""
_TERM = re.compile(r"(max|min)(?: by \((\w+)\) )?\((\w+)\) (==|<|>=|>) (\d+)")
_COMPARES: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "<": operator.lt,
    ">=": operator.ge,
    ">": operator.gt,
}


@functools.cache
def rules() -> dict[str, dict[str, Any]]:
    """{alert: its rule} of all."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


def samples(metrics: Iterable[Metric]) -> Samples:
    """{(name, labels): value}."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for metric in metrics
        for sample in metric.samples
    }


def firing(found: Samples) -> dict[str, list[str]]:
    """{alert whose expression holds: values of its label, if it has one}; of those that look at one moment."""
    asked = {name: rule["expr"] for name, rule in rules().items() if "[" not in rule["expr"] and name not in BEYOND}
    held = {name: _evaluated(expression, found) for name, expression in asked.items()}
    return {name: labels for name, labels in held.items() if labels}


def _evaluated(expression: str, found: Samples) -> list[str]:
    held: list[str] = []
    for alternative in expression.split(" or "):
        parts = [_term(part, found) for part in alternative.split(" and on() ")]
        if all(parts):
            held += parts[0]
    return held


def _term(term: str, found: Samples) -> list[str]:
    if absent := re.fullmatch(r"absent\((\w+)\)", term):
        return [] if any(name == absent[1] for name, _ in found) else [""]
    parsed = _TERM.fullmatch(term)
    assert parsed is not None, f"not understood here: {term}"
    aggregate, label, metric, comparison, limit = parsed.groups()
    groups: dict[str, list[float]] = {}
    for (name, labels), value in found.items():
        if name == metric:
            groups.setdefault(dict(labels).get(label or "", ""), []).append(value)
    aggregated = {group: (max if aggregate == "max" else min)(values) for group, values in groups.items()}
    return [group for group, value in aggregated.items() if _COMPARES[comparison](value, float(limit))]
