"""Repair of markers: one that is due is written."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine import Resources
from recovery.engine.end.marking import mark
from recovery.repair.changed import Changed, of_batch, of_records
from recovery.rules import Finding, Repair, Rule, Surroundings


class MarkerRepairs:
    """What can be done about a process that broke and left no marker yet."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.actions = {Repair.WRITE_MARKER: self._write}

    def _write(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        return of_batch([f.record for f in findings], lambda some: of_records(mark(self._resources, some)))
