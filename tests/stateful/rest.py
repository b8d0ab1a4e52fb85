"""Without faults everything comes to rest, and within few looks."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.stateful.checks import KINDS, Memory, live, read
from tests.stateful.cluster import WORK, Cluster
from tests.stateful.documents import Documents
from tests.stateful.ends import check_end

ROUNDS = 60
"""Within so many rounds of looking at everything, each after the last deadline, all is at rest."""


def bring_to_rest(
    cluster: Cluster, programs: dict[str, Any], memory: Memory | None = None, mended: bool = False
) -> Documents:
    """Let a survivor bring on everything; then the processes, {custom id: program}, have ended as they must (`ends`).

    Every round is checked with the memory, of what happened before. Returned are the records at the end.
    """
    memory = memory or Memory()
    survivor = cluster.member()
    for _ in range(ROUNDS):
        cluster.bring_to_end(survivor)
        found = read(cluster.database)
        memory.check(found)
        if not live(found):
            break
        cluster.passing.pass_by(_until_all_is_overdue(found))
    assert not live(found), f"not at rest after {ROUNDS} rounds: {live(found)}"
    processes = found["processes"]
    replaced = {key for key, document in processes.items() if "customId" not in document}
    assert all(processes[key]["state"] in ("finished", "aborted") for key in replaced), "replaced, and not over"
    assert all(processes[key]["formerCustomId"] in programs for key in replaced)
    named = [(document["customId"], key) for key, document in processes.items() if key not in replaced]
    ids = dict(named)
    assert len(named) == len(ids) and ids.keys() == programs.keys()
    for custom_id, program in programs.items():
        check_end(found, ids[custom_id], program, memory, mended)
    return found


def _until_all_is_overdue(found: Documents) -> float:
    """Seconds, and some more."""
    deadlines = [d["recoveryTime"] for name in KINDS for d in found[name].values() if "recoveryTime" in d]
    now = datetime.now(UTC)
    return WORK + max(0.0, *(float((deadline - now).total_seconds()) for deadline in deadlines))
