"""What the dashboards ask, from the JSON that Grafana reads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.docs.blocks import ROOT

JSON = ROOT / "deploy" / "grafana" / "json"

_METRIC = re.compile(r"\brecovery_[a-z_]+\b")
_SUFFIX = re.compile(r"_(?:bucket|sum|count)$")


@dataclass(frozen=True)
class Query:
    """One query of a panel, or of an annotation."""

    board: str
    panel: str
    expr: str
    legend: str

    def __str__(self) -> str:
        return f"{self.board}: {self.panel}: {self.expr}"


def boards() -> dict[str, dict[str, Any]]:
    """{uid: dashboard} of all."""
    found = [json.loads(file.read_text()) for file in sorted(JSON.glob("*.json"))]
    return {board["uid"]: board for board in found}


def panels(board: dict[str, Any]) -> list[dict[str, Any]]:
    """Its panels without the rows' titles, in order."""
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def asked() -> Iterator[Query]:
    """Every query of every panel and annotation."""
    for uid, board in boards().items():
        for panel in panels(board):
            for target in panel["targets"]:
                yield Query(uid, panel["title"], target["expr"], target.get("legendFormat", ""))
        for mark in board["annotations"]["list"]:
            yield Query(uid, mark["name"], mark["expr"], mark["textFormat"])


def concrete(expr: str, *, rate_interval: str = "1m", range_: str = "1h") -> str:
    """The query as Grafana sends it when everything is chosen, with these in the place of its own variables."""
    for name, value in (("__rate_interval", rate_interval), ("__range", range_), ("type", ".*"), ("actor", ".*")):
        expr = re.sub(rf"\${name}\b", value, expr)
    return re.sub(r"\$kind\b", ".*", expr)


def metrics_of(expr: str) -> set[str]:
    """The metrics of ours that a query asks for, as they are named on their page."""
    return {_SUFFIX.sub("", name) for name in _METRIC.findall(expr)}
