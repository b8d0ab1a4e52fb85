"""The means of these tests: hosts can be cut and healed, and the checks see what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.network import checks, hosts
from tests.network.cluster import HEARTBEAT_TIMEOUT


def test_it_is_said_why_there_are_no_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts.os, "geteuid", lambda: 1000)
    assert hosts.why_not() == "needs root: hosts are network namespaces"
    monkeypatch.setattr(hosts.os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    assert hosts.why_not() == "needs ethtool, ip, nft, unshare: apt install ethtool iproute2 nftables util-linux"


def line(event: str, **fields: Any) -> dict[str, Any]:
    return {"event": event, **fields}


def test_the_checks_see_what_is_wrong() -> None:
    stored = [
        {"_id": "p1", "customId": "k1", "state": "finished"},
        {"_id": "p2", "customId": "k1", "state": "running"},
    ]
    assert list(checks.lost(stored, [line("started", key="k3", process="p3")])) == [
        "lost: k3 was acknowledged as p3",
        "started 2 times: k1",
        "not finished: p2 is running",
    ]
    value = {"sum": 1, "saw": ["a"], "run": "b"}
    told = [line("told", process="p1", value=value, right=True), line("told", process="p1", value=value, right=False)]
    assert list(checks.changed(told[:1], {"a", "b"})) == []
    assert [text.partition(":")[0] for text in checks.changed(told, {"a"})] == ["taken back", "wrong"]
    ledger = [line("ended", run=run, task="p1/join", saw=saw) for run, saw in (("b", ["a"]), ("c", ["d"]))]
    assert [text.partition(":")[0] for text in checks.twice(ledger, {"p1/join": "b", "p1/x": "e"})] == [
        "of no run that ended", "accepted twice", "taken back", "taken back"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("reached", "always"),
    [
        ([100 + n / 2 for n in range(20)], True),
        ([100 + n / 2 for n in range(20) if n not in (5, 6, 7)], False),
        ([], False),
    ],
    ids=["each half second", "not for two seconds", "never"],
)
def test_who_could_write_its_heartbeats(reached: list[float], always: bool) -> None:
    assert checks.reached_always(reached, 101 + HEARTBEAT_TIMEOUT) is always
