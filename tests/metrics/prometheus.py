"""A real Prometheus, that scrapes what a test names and evaluates the rules; and what it says when it is asked."""

from __future__ import annotations

import json
import re
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
import yaml

from recovery.stack import ChildProcess
from recovery.stack.server_process import free_port
from tests.metrics.alerts import RULES
from tests.waiting import wait_until

PROGRAM = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(PROGRAM is None, reason="Prometheus is not installed")

_DURATION = re.compile(r"(?<=[\[: ])(\d+)([smhd])(?=[\]):\n ]|$)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@dataclass(frozen=True)
class Series:
    """One series of an answer: its labels, and its values by time."""

    labels: dict[str, str]
    values: list[tuple[float, float]]


class Prometheus:
    """From construction until the end of the block it scrapes the ports of this machine, under the job `recovery`."""

    def __init__(self, folder: Path, ports: Iterable[int], *, every: float = 1.0, rules: str | None = None) -> None:
        """`rules` as the text of a file; by default those that are deployed."""
        self._folder, self._port, self._targets = folder, free_port(), [*ports]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rules.yml").write_text(RULES.read_text() if rules is None else rules)
        interval = f"{round(every * 1000)}ms"
        named = {"files": ["targets.json"], "refresh_interval": "1s"}
        job = {"job_name": "recovery", "file_sd_configs": [named]}
        times = {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval}
        document = {"global": times, "rule_files": ["rules.yml"], "scrape_configs": [job]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(document))
        self._name_targets()

    def scrape(self, port: int) -> None:
        """From within a second or so on, this one as well."""
        self._targets.append(port)
        self._name_targets()

    def _name_targets(self) -> None:
        group = {"targets": [f"127.0.0.1:{port}" for port in self._targets]}
        written = self._folder / "targets.json.written"
        written.write_text(json.dumps([group]))
        written.replace(self._folder / "targets.json")

    def __enter__(self) -> Self:
        options = [
            f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=warn",
        ]
        self._child = ChildProcess("prometheus", [str(PROGRAM), *options], self._folder / "prometheus.log")
        wait_until(self._ready, 30, "Prometheus to be ready")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill_group()

    def now(self) -> float:
        """Its clock, as seconds since 1970."""
        ((_, value),) = self.ask("time()")[0].values
        return value

    def ask(self, query: str) -> list[Series]:
        """What a query gives now. Raises ValueError, with what Prometheus says, for one that it does not take."""
        found = self._get("query", query=query)
        if found["resultType"] == "scalar":
            return [Series({}, [(float(found["result"][0]), float(found["result"][1]))])]
        return [Series(one["metric"], [_value(one["value"])]) for one in found["result"]]

    def ask_over(self, query: str, start: float, end: float, step: float) -> list[Series]:
        """What it gave at each step of a time, as a graph of Grafana's asks."""
        found = self._get("query_range", query=query, start=start, end=end, step=step)
        return [Series(one["metric"], [_value(pair) for pair in one["values"]]) for one in found["result"]]

    def firing(self) -> dict[str, list[dict[str, str]]]:
        """{alert: the labels with which it fires}."""
        found: dict[str, list[dict[str, str]]] = {}
        for one in self._get("alerts")["alerts"]:
            if one["state"] == "firing":
                labels = dict(one["labels"])
                found.setdefault(labels.pop("alertname"), []).append(labels)
        return found

    def alerts(self) -> list[str]:
        """Those that fire or are about to. Of the first evaluations the series `ALERTS` does not tell."""
        return [f"{one['labels']['alertname']} {one['state']}" for one in self._get("alerts")["alerts"]]

    def unscraped(self) -> list[str]:
        """Targets whose last scrape did not go well, and why."""
        found = self._get("targets")["activeTargets"]
        return [f"{one['scrapeUrl']}: {one['lastError']}" for one in found if one["health"] != "up"]

    def _ready(self) -> bool:
        assert self._child.running, "\n".join(self._child.last_lines(20))
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _get(self, what: str, **arguments: object) -> Any:
        query = urllib.parse.urlencode(arguments)
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/api/v1/{what}?{query}", timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{json.load(error)['error']}: {arguments.get('query')}") from None


def hurried(factor: float) -> str:
    """The rules with every duration in them divided: what takes ten minutes then takes ten minutes by `factor`. A rule
    that holds for seconds holds for half a second at least."""

    def shorter(found: re.Match[str]) -> str:
        return f"{max(500, round(int(found[1]) * _SECONDS[found[2]] * 1000 / factor))}ms"

    document = yaml.safe_load(RULES.read_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["expr"] = _DURATION.sub(shorter, rule["expr"])
            if "for" in rule:
                rule["for"] = _DURATION.sub(shorter, f" {rule['for']}").strip()
    text: str = yaml.safe_dump(document)
    return text


def _value(pair: list[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])
