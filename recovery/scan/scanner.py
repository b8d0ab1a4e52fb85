"""The skeleton of all scanners: find a page, judge it, repair it, and repeat while pages are full.

Scanners take no lock. Any number may run at once, because records that one scanner has repaired no longer match for the
others. Several scanners on the same records are slower than one, so a scanner ends its run after a full page of which
others have requeued most tasks. It tries again with the next nudge.

After a run that ended because of its time limit, a scanner remembers its last pages. `run_once` does not raise if a
server is unavailable: records stay overdue, and the next nudge comes.

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
"""Maximum seconds of a scan. After it the result is reported, and the next nudge continues."""


@dataclass(slots=True)
class ScanResult:
    """The result of a scan."""

    scanner: str
    looked_at: int = 0
    repaired: Counter[Rule] = field(default_factory=Counter)
    seconds: float = 0.0
    error: str | None = None
    more: bool = False
    """Whether the scan ended because of its time limit, with more to do."""


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """A page of records that a scanner judges together: the readable ones and the damage of the others."""

    items: Sequence[Item] = ()
    damaged: Sequence[DamagedRecord] = ()
    begun_at: datetime | None = None
    """When reading began, if reading takes long enough to matter."""
    more: bool = False
    """Whether more records were found than read."""
    diagnosis: Diagnosis | None = None
    """The findings on the items, if they were judged when they were read."""

    def __len__(self) -> int:
        return len(self.items) + len(self.damaged)


class Scanner(ABC, Generic[Item]):
    """Finds overdue records of one kind and repairs them."""

    name: str
    page: int
    repairs_move_deadlines = False
    """Whether a repair moves the deadline of its record, and each record has at most one repair. Then a page with as
    many repairs as records contains nothing healthy."""

    def __init__(self, resources: Resources, outbox: Outbox) -> None:
        self.resources = resources
        self.repairer = Repairer(resources, outbox)
        # The last two pages, because a scanner may alternate between the oldest and the newest overdue records.
        self._recent: deque[set[str]] = deque(maxlen=2)
        self._continues = self._is_outrun = False

    @abstractmethod
    def find(self) -> Page[Item]:
        """Return the next page of overdue records, the longest overdue first; an empty page after the last."""

    @abstractmethod
    def judge(self, page: Page[Item]) -> Diagnosis:
        """Return the findings on the readable records of a page."""

    @abstractmethod
    def key(self, item: Item) -> str:
        """Return the id of an item."""

    def is_last(self, page: Page[Item]) -> bool:
        """Return whether no other record was overdue when this page was read."""
        return len(page) < self.page and not page.more

    def postpone_healthy(self, page: Sequence[Item]) -> None:
        """Move the deadlines of items that needed no repair. By default, does nothing."""

    def postpone(self, record: Any) -> None:
        """Move the deadline of a record that can't be read, or of its process."""

    def run_once(self, seconds: float = MAX_SECONDS) -> ScanResult:
        """Scan for at most about `seconds` seconds. Return the result; errors of servers are part of it."""
        started, result = time.perf_counter(), ScanResult(self.name)
        if not self._continues:
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
                result.more = time.perf_counter() - started > seconds
                if result.more:
                    break
        except (StoreError, BrokerError, DamagedRecord) as error:
            result.error = in_a_line(error)
            log.warning("%s scan cut off (%s); the next nudge goes on", self.name, result.error)
            if isinstance(error, IndexMissing):
                self._create_indexes()
        self._continues, result.seconds = result.more, time.perf_counter() - started
        return self._counted(result)

    def look_past(self) -> ScanResult:
        """Return an empty result without a query, because the caller knows that nothing is overdue."""
        self._continues = False
        return self._counted(ScanResult(self.name))

    def _is_over(self, page: Page[Item], done: Done) -> bool:
        """Return whether the run should end after this page.

        It ends if nothing else is overdue, if other scanners work on the same records, or if the page repeats a recent
        one without any repair.
        """
        if self.is_last(page) or (self._is_outrun and len(page) >= self.page):
            return True
        ids = {self.key(item) for item in page.items} | {repr(damage.record) for damage in page.damaged}
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
        """Judge a page and repair it. If a record raises, judge and repair the records one by one."""
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
        """Mend damaged records if possible. Log and postpone the others, so that they do not block any."""
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

    def _create_indexes(self) -> None:
        try:
            self.resources.store.layout.create()
            log.warning("missing indexes were created again")
        except (StoreError, ServerRefused) as error:
            log.warning("missing indexes could not be created again (%s)", error)
