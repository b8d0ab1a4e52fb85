"""Repair of markers: one that is due is written."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine import Resources, batch_or_each
from recovery.engine.lifecycle.marking import mark
from recovery.rules import Finding, Repair, Rule, Surroundings


class MarkerRepairs:
    """What can be done about a process that broke and left no marker yet."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.actions = {Repair.WRITE_MARKER: self._write}

    def _write(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> int:
        return batch_or_each([finding.record for finding in findings], lambda some: mark(self._resources, some))
