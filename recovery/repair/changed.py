"""Actions, which do repairs, and what they changed.

An action returns what it changed by process: an operator is told of each process what was done to it. Metrics count by
actor. Most actions are made of a step of the engine and the records that it is taken for (`on_each`, `on_all`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from recovery.engine import batch_or_each, for_each
from recovery.records.ids import split_record_id
from recovery.repair.requeue_pace import Later
from recovery.rules import Finding, Rule, Surroundings

Item = TypeVar("Item")
Changed = Counter[str]
"""{process: how often something of it was changed}."""
Done = Counter[Rule]
"""{rule: repairs that changed something}."""
Action = Callable[[Rule, Sequence[Finding], Surroundings], Changed]
"""Does a repair for findings of one rule that ask for it."""


OUTRUN = 10
"""Times as many tasks as were requeued that were to be, from which on others are at work on them. Of several that are
at work on the same tasks one is mostly first at nearly all; if each of a few were first at some, none would end."""


@dataclass(slots=True)
class Repaired:
    """What came of a repair."""

    changed: defaultdict[Rule, Changed] = field(default_factory=lambda: defaultdict(Changed))
    """{rule: what its repairs changed, by process}."""
    postponed: list[Later] = field(default_factory=list)
    """Tasks that are to be requeued, and are not yet, for the `requeue_rate` of their actors: scanners do it then."""
    wanted: int = 0
    """Tasks that were to be requeued now."""
    queued: int = 0
    """Tasks that were: others had changed."""

    @property
    def done(self) -> Done:
        return Counter({rule: changed.total() for rule, changed in self.changed.items()})

    @property
    def is_outrun(self) -> bool:
        """Whether most tasks that were to be requeued had changed: others are at work on the same ones."""
        return self.wanted > OUTRUN * self.queued


def of_records(records: Iterable[str]) -> Changed:
    """These records were changed: processes, graphs or tasks."""
    return Counter(split_record_id(key)[0] for key in records)


def of_count(records: Iterable[str], count: int) -> Changed:
    """So many of these were. An update of many tells no more: where somebody else was first at some, which is hardly
    ever, the first ones have it."""
    return of_records(islice(records, count))


def of_each(
    items: Iterable[Item],
    step: Callable[[Item], bool],
    name: Callable[[Item], str] = str,
    failed: Callable[[str], object] | None = None,
) -> Changed:
    """Those of these that the step changed, by the `name` of their record; see `for_each`."""
    records: list[str] = []

    def take(item: Item) -> bool:
        changed = step(item)
        if changed:
            records.append(name(item))
        return changed

    for_each(items, take, name, failed)
    return of_records(records)


def of_batch(records: Sequence[str], step: Callable[[Sequence[str]], Changed]) -> Changed:
    """What a step changed of these, taken for all at once, or one by one; see `batch_or_each`."""
    changed = Changed()

    def take(some: Sequence[str]) -> int:
        done = step(some)
        changed.update(done)
        return done.total()

    batch_or_each(records, take)
    return changed


def on_each(step: Callable[[str], bool]) -> Action:
    """Return an action that takes a step for the record of each finding, and is told by it whether it changed that."""
    return lambda _rule, findings, _around: of_each([finding.record for finding in findings], step)


def on_all(step: Callable[[list[str]], Iterable[str]]) -> Action:
    """Return an action that takes a step for the records of all findings at once. The step returns what it changed."""
    return lambda _rule, findings, _around: of_records(step([finding.record for finding in findings]))


def on_batch(step: Callable[[Sequence[str]], Iterable[str]]) -> Action:
    """Return the same, for a step that fails if a record is damaged: then it is taken for one by one."""
    return lambda _rule, findings, _around: of_batch(
        [finding.record for finding in findings], lambda some: of_records(step(some))
    )


def by_actor(findings: Sequence[Finding], changed: Changed | None = None) -> Counter[str]:
    """Return {actor: findings on its tasks}; only of those whose repair `changed` something, if that is given. What is
    on no single task has no actor: "". A repair reports how much it changed of each process. If that is less than was
    found, which is hardly ever, the first ones are counted."""
    if changed is None or changed.total() == len(findings):
        return Counter(map(_actor, findings))
    left, counted = Counter(changed), Counter[str]()
    for finding in findings:
        if left[finding.process_id] > 0:
            left[finding.process_id] -= 1
            counted[_actor(finding)] += 1
    # One finding may take several steps, as lost records of a process do.
    return counted + Counter({_actor(findings[0]): left.total()})


def _actor(finding: Finding) -> str:
    return finding.decision.actor if finding.decision is not None else ""
