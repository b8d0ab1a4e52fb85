"""Without faults everything comes to rest, and within few looks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from tests.stateful import checks
from tests.stateful.cluster import WORK, Cluster

ROUNDS = 60
"""Within so many rounds of looking at everything, each after the last deadline, all is at rest."""


def bring_to_rest(
    cluster: Cluster, programs: dict[str, Any], each: Callable[[checks.Documents], None] = lambda _: None
) -> None:
    """Let a survivor bring on everything; then the processes, {custom id: program}, have ended as they must.

    `each` is shown the records after each round.
    """
    survivor = cluster.member()
    for _ in range(ROUNDS):
        cluster.bring_on(survivor)
        found = checks.read(cluster.database)
        each(found)
        if not checks.live(found):
            break
        cluster.passing.pass_by(_until_all_is_overdue(found))
    assert not checks.live(found), f"not at rest after {ROUNDS} rounds: {checks.live(found)}"
    ids = {document["customId"]: key for key, document in found["processes"].items()}
    assert ids.keys() == programs.keys()
    for custom_id, program in programs.items():
        checks.check_end(found, ids[custom_id], program)


def _until_all_is_overdue(found: checks.Documents) -> float:
    """Seconds, and some more."""
    deadlines = [d["recoveryTime"] for name in checks.KINDS for d in found[name].values() if "recoveryTime" in d]
    now = datetime.now(UTC)
    return WORK + max(0.0, *(float((deadline - now).total_seconds()) for deadline in deadlines))
