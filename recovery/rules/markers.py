"""MARKER_MISSING: a process broke, and the marker that is due for it was not written.

That it is due was written with its end. So it is written now, whenever that was: who is about to does the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from recovery.records import ProcessState
from recovery.rules.findings import Finding, Repair, Rule, Snapshot


def marker_missing(snapshot: Snapshot) -> Iterator[Finding]:
    """A broken process still has its marker to write."""
    process = snapshot.process
    if process is not None and process.state is ProcessState.BROKEN and process.marker_due and snapshot.ordered:
        evidence = "it broke, and whoever was to write its marker was cut off"
        yield Finding(Rule.MARKER_MISSING, process.id, Repair.WRITE_MARKER, evidence)
