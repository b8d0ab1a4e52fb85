"""What an apply is given and what it says: finished tasks, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from recovery.records import Decision, Task

HEAVY = 64 * 1024
"""Characters from which on arguments and a value are not kept while their task waits to be applied."""


class Applied(StrEnum):
    """What came of an apply."""

    NOW = "applied"
    BEFORE = "was applied before"
    RESTORED = "was applied before, and children's records were missing"
    NOT_YET = "its parent is not applied yet"
    STALE = "of an earlier epoch, or restarted since, or of no graph"


@dataclass(frozen=True, slots=True)
class Ended:
    """A task and its finished decision; and the task that was claimed on the spot because of it, if one was."""

    task: Task
    decision: Decision
    successor: str | None = None

    @property
    def process_id(self) -> str:
        return self.decision.process_id

    @property
    def failed(self) -> bool:
        """Whether it has no value that others could go on with."""
        return self.decision.outcome is None or self.decision.failed

    def light(self) -> Ended:
        """The same, without arguments and value where they are large: dozens of these wait to be applied, which takes
        neither. Whoever wants the value reads it."""
        task, outcome = self.task, self.decision.outcome
        if len(task.args) + len((outcome and outcome.value) or "") <= HEAVY:
            return self
        decision = self.decision.evolve(outcome=outcome.evolve(value=None)) if outcome else self.decision
        return replace(self, task=task.evolve(args=""), decision=decision)


@dataclass(frozen=True, slots=True)
class Effect:
    """What an apply did. `size` is that of the graph, in bytes; 0 if it is complete or was not changed. With
    `complete` its process has ended, and it is to be laid to rest."""

    applied: Applied
    taken: Decision | None = None
    size: int = 0
    complete: bool = False


Take = Callable[[Mapping[str, str]], Decision | None]
"""Given {ready decision: its actor}, claims one of them for the caller, or none."""
