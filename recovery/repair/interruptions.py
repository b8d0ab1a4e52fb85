"""Repair of what is listed for operators: what a broken process is not listed for is listed again."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.engine import Resources, list_again
from recovery.repair.changed import Changed, of_each
from recovery.rules import Finding, Repair, Rule, Surroundings


class InterruptionRepairs:
    """What can be done about a broken process that nobody would see."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.actions = {Repair.LIST_AGAIN: self._list}

    def _list(self, _rule: Rule, findings: Sequence[Finding], _: Surroundings) -> Changed:
        return of_each([finding.record for finding in findings], lambda record: list_again(self._resources, record))
