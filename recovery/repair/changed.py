"""Actions that carry out repairs, and the counts of what they changed.

An action returns the number of changes by process, because operators see for each process what was done. Metrics count
by actor. Most actions combine a step of the engine with the records that it is run for (`on_each`, `on_all`).
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
"""Number of changes by process id."""
Done = Counter[Rule]
"""Number of repairs that changed something, by rule."""
Action = Callable[[Rule, Sequence[Finding], Surroundings], Changed]
"""A repair action. It takes a rule, findings of this rule with the same repair, and the surroundings."""


OUTRUN = 10
"""Ratio of tasks to requeue to requeued tasks above which other workers are presumed to be ahead on the same tasks.
Usually one of several workers is first at nearly all tasks. With a lower ratio, all of them would stop if each were
first at some."""


@dataclass(slots=True)
class Repaired:
    """The result of a repair."""

    changed: defaultdict[Rule, Changed] = field(default_factory=lambda: defaultdict(Changed))
    """What the repairs of each rule changed, by process id."""
    postponed: list[Later] = field(default_factory=list)
    """Tasks that must be requeued later, because of their actor's `requeue_rate`. Scanners requeue them then."""
    wanted: int = 0
    """Number of tasks that were to be requeued now."""
    queued: int = 0
    """Number of tasks that were requeued. The others had changed."""

    @property
    def done(self) -> Done:
        return Counter({rule: changed.total() for rule, changed in self.changed.items()})

    @property
    def is_outrun(self) -> bool:
        """Whether most tasks to requeue had changed, because other workers are repairing the same tasks."""
        return self.wanted > OUTRUN * self.queued


def of_records(records: Iterable[str]) -> Changed:
    """Count one change for each of these records (processes, graphs or tasks)."""
    return Counter(split_record_id(record_id)[0] for record_id in records)


def of_count(records: Iterable[str], count: int) -> Changed:
    """Count `count` of these records as changed.

    `update_many` returns only a count, so the first records are credited.
    """
    return of_records(islice(records, count))


def of_each(
    items: Iterable[Item],
    step: Callable[[Item], bool],
    name: Callable[[Item], str] = str,
    failed: Callable[[str], object] | None = None,
) -> Changed:
    """Run a step for each item. Count the records for which it returned True.

    Args:
        items: The items.
        step: Returns whether it changed the item's record.
        name: Returns the id of an item's record.
        failed: Called with the record's id if the step raises; see `for_each`.
    """
    records: list[str] = []

    def run_step(item: Item) -> bool:
        changed = step(item)
        if changed:
            records.append(name(item))
        return changed

    for_each(items, run_step, name, failed)
    return of_records(records)


def of_batch(records: Sequence[str], step: Callable[[Sequence[str]], Changed]) -> Changed:
    """Run a step for all records at once, or one by one if that fails; see `batch_or_each`. Return what it changed."""
    changed = Changed()

    def run_step(batch: Sequence[str]) -> int:
        changes = step(batch)
        changed.update(changes)
        return changes.total()

    batch_or_each(records, run_step)
    return changed


def on_each(step: Callable[[str], bool]) -> Action:
    """Return an action that runs a step for the record of each finding.

    The step returns whether it changed the record.
    """
    return lambda _rule, findings, _surroundings: of_each([finding.record for finding in findings], step)


def on_all(step: Callable[[list[str]], Iterable[str]]) -> Action:
    """Return an action that runs a step once for the records of all findings. The step returns the changed records."""
    return lambda _rule, findings, _surroundings: of_records(step([finding.record for finding in findings]))


def on_batch(step: Callable[[Sequence[str]], Iterable[str]]) -> Action:
    """Return an action like `on_all`, which runs the step for single records if it fails for all of them."""
    return lambda _rule, findings, _surroundings: of_batch(
        [finding.record for finding in findings], lambda batch: of_records(step(batch))
    )


def by_actor(findings: Sequence[Finding], changed: Changed | None = None) -> Counter[str]:
    """Count findings by the actor of their task; only repaired ones if `changed` is given.

    Findings without a single task count for the actor "". A repair returns only the number of changes per process. If a
    process has fewer changes than findings, its first findings are counted.
    """
    if changed is None or changed.total() == len(findings):
        return Counter(map(_actor, findings))
    uncounted, counted = Counter(changed), Counter[str]()
    for finding in findings:
        if uncounted[finding.process_id] > 0:
            uncounted[finding.process_id] -= 1
            counted[_actor(finding)] += 1
    # One finding may cause several changes, for example lost records of a process.
    return counted + Counter({_actor(findings[0]): uncounted.total()})


def _actor(finding: Finding) -> str:
    return finding.decision.actor if finding.decision is not None else ""
