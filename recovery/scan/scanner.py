"""The skeleton of every scanner: find a page → judge it → act → a named result; again while pages are full.

A scanner takes no lock: any number may run at once, since what one of them acts on no longer matches for the others.
Several are no faster than one, and slower if they are at work on the same records. So a scanner ends its run after a
full page most of which others have requeued. The others go on, and with the next nudge it tries again.

After a run that ended for its time a scanner keeps what its last pages were. `run_once` does not raise for servers that
are away: the next nudge comes, and what was overdue stays so.

Metrics: recovery_scan_seconds, recovery_scans, both by scanner.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Generic, TypeVar

from recovery import metrics
from recovery.engine import Outbox, Resources
from recovery.engine.isolation import in_a_line
from recovery.errors import BrokerError, DamagedRecord, IndexMissing, RecordInvalid, ServerRefused, StoreError
from recovery.repair import Diagnosis, Done, Repairer, keep_empty
from recovery.rules import SPOILT, Finding, Repair, Rule, Surroundings, droppable
from recovery.store.record_reading import tell

log = logging.getLogger(__name__)

Item = TypeVar("Item")

MAX_SECONDS = 20.0
"""After so long a scan ends, so that its result is seen; the next nudge goes on."""


@dataclass(slots=True)
class ScanResult:
    """What a scan did."""

    scanner: str
    looked_at: int = 0
    repaired: Counter[Rule] = field(default_factory=Counter)
    seconds: float = 0.0
    error: str | None = None
    more: bool = False
    """Whether it ended for its time: there is more to do."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """What a scanner looks at together: what could be read, and why not of the rest."""

    items: Sequence[Item] = ()
    damaged: Sequence[DamagedRecord] = ()
    begun_at: datetime | None = None
    """When it was begun to read them, where that took long enough to count."""
    more: bool = False
    """Whether others were found and not read."""
    diagnosis: Diagnosis | None = None
    """What is wrong with the items, where it was judged as they were read."""

    def __len__(self) -> int:
        return len(self.items) + len(self.damaged)


class Scanner(ABC, Generic[Item]):
    """Finds overdue records of one kind and repairs what is wrong."""

    name: str
    page: int
    repairs_move_deadlines = False
    """Whether a repair moves its record's deadline, and each record has one repair at the most: a page of as many
    repairs as records has nothing healthy in it."""

    def __init__(self, resources: Resources, outbox: Outbox) -> None:
        self.resources = resources
        self.repairer = Repairer(resources, outbox)
        # Of two, since a scanner may look at one end of what is overdue and at the other by turns.
        self._recent: deque[set[str]] = deque(maxlen=2)
        self._goes_on = self._is_outrun = False

    @abstractmethod
    def find(self) -> Page[Item]:
        """The next page of records whose deadline is past, the longest first; empty after the last one."""

    @abstractmethod
    def judge(self, page: Page[Item]) -> Diagnosis:
        """What is wrong with those that could be read."""

    @abstractmethod
    def key(self, item: Item) -> str:
        """The id of what is looked at."""

    def is_last(self, page: Page[Item]) -> bool:
        """Whether nothing was overdue but this page."""
        return len(page) < self.page and not page.more

    def postpone_healthy(self, page: Sequence[Item]) -> None:
        """Move the deadlines of what needed no repair; by default there is nothing to move."""

    def postpone(self, record: Any) -> None:
        """Move the deadline of a record that can't be read, or of its process."""

    def run_once(self, seconds: float = MAX_SECONDS) -> ScanResult:
        """Scan for about `seconds` seconds, or until `_is_over`."""
        began, result = time.perf_counter(), ScanResult(self.name)
        if not self._goes_on:
            self._recent.clear()
        try:
            while page := self.find():
                result.looked_at += len(page)
                self._is_outrun = False
                done = self._look_at(page) + self._mend(page.damaged)
                result.repaired += done
                if not (self.repairs_move_deadlines and done.total() == len(page)):
                    self.postpone_healthy(page.items)
                if self._is_over(page, done):
                    break
                result.more = time.perf_counter() - began > seconds
                if result.more:
                    break
        except (StoreError, BrokerError, DamagedRecord) as caught:
            result.error = in_a_line(caught)
            log.warning("%s scan cut off (%s); the next nudge goes on", self.name, result.error)
            if isinstance(caught, IndexMissing):
                self._index_again()
        self._goes_on, result.seconds = result.more, time.perf_counter() - began
        return self._counted(result)

    def look_past(self) -> ScanResult:
        """A run that asks nothing: somebody has seen that nothing is overdue."""
        self._goes_on = False
        return self._counted(ScanResult(self.name))

    def _is_over(self, page: Page[Item], done: Done) -> bool:
        """Whether nothing is overdue behind this page, or another scanner is at work on the same records, or the page
        brings nothing new and nothing could be done about it."""
        if self.is_last(page) or (self._is_outrun and len(page) >= self.page):
            return True
        ids = {self.key(item) for item in page.items} | {repr(one.record) for one in page.damaged}
        if ids in self._recent and not done:
            log.warning("%s scan: %d overdue records can't be repaired, first %s", self.name, len(page), min(ids))
            return True
        self._recent.append(ids)
        return False

    def _counted(self, result: ScanResult) -> ScanResult:
        metrics.SCAN_SECONDS.labels(self.name).observe(result.seconds)
        metrics.SCANS.labels(self.name, "cut off" if result.error else "done").inc()
        return result

    def _look_at(self, page: Page[Item]) -> Done:
        """Judge a page and repair it. Where a record has something in it that nobody can work with, one by one."""
        if not page.items:
            return Counter()
        try:
            diagnosis = page.diagnosis or self.judge(page)
            keep_empty(self.resources, diagnosis.around)
            repaired = self.repairer.repair(diagnosis.findings, diagnosis.around)
            self._is_outrun = repaired.is_outrun
            return repaired.done
        except (*SPOILT, RecordInvalid) as error:
            if len(page.items) == 1:
                key = self.key(page.items[0])
                self._pass_over(DamagedRecord(key, f"{key}: {type(error).__name__}: {error}"))
                return Counter()
        done: Done = Counter()
        for item in page.items:
            done += self._look_at(replace(page, items=[item], diagnosis=None))
        return done

    def _mend(self, damaged: Sequence[DamagedRecord]) -> Done:
        """What of these can be mended is; the others are told, and postponed, and hold up nobody."""
        done: Done = Counter()
        for damage in damaged:
            mended: Done = Counter()
            if droppable(damage):
                finding = Finding(Rule.RECORD_DAMAGED, damage.record, Repair.MEND, str(damage))
                mended = self.repairer.repair([finding], Surroundings(now=self.resources.store.now())).done
            if not mended:
                self._pass_over(damage)
            done += mended
        return done

    def _pass_over(self, damage: DamagedRecord) -> None:
        tell(damage)
        metrics.DAMAGED.inc()
        self.postpone(damage.record)

    def _index_again(self) -> None:
        try:
            self.resources.store.layout.create()
            log.warning("indexes were missing, and were made again")
        except (StoreError, ServerRefused) as error:
            log.warning("indexes are missing, and could not be made again (%s)", error)
