"""Reading ahead: the next page of overdue decisions is read, and judged, while one is repaired."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime

from recovery.records import Decision
from recovery.repair import Diagnosis
from recovery.rules import SPOILT
from recovery.scan.scanner import Page
from recovery.store import Decisions
from recovery.store.reading import Read

Judge = Callable[[Page[Decision]], Diagnosis]

RECENT = 10.0
"""Seconds for which what fell overdue has every other page: longer than from one run to the next."""


class ReadAhead:
    """The pages of one run: by turns of what is overdue longest, and of what fell overdue just now.

    Either is one query, whose answer is read page by page, forward: to ask anew for each page, or to read backward, the
    server would go through what was overdue and is not any more, which it does not forget at once. So what becomes
    overdue meanwhile is for the next run.
    """

    def __init__(self, decisions: Decisions, size: int, judge: Judge, *, recent_first: bool) -> None:
        self._decisions, self._size, self._judge, self._recent_next = decisions, size, judge, recent_first
        self._longest = decisions.overdue_pages(size)
        self._recent: Iterator[Read[Decision]] | None = None
        self._reached: datetime | None = None
        self._at_work: frozenset[str] = frozenset()
        self._beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead")
        self._next: Future[Page[Decision]] | None = None

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.shutdown()

    def page(self) -> Page[Decision]:
        """The next page; it is the last if there is not `more`. Raises StoreError."""
        under_way = self._next or self._beside.submit(self._read)
        self._next = None
        page = under_way.result()
        if page.more:
            self._next = self._beside.submit(self._read)
        return page

    def _read(self) -> Page[Decision]:
        while True:
            recent, self._recent_next = self._recent_next, not self._recent_next
            found: Read[Decision] = self._read_recent() if recent else Read()
            if more := len(found) > 0:
                full = len(found) == self._size
            else:
                recent, found = False, next(self._longest, Read())
                full = more = len(found) == self._size
                self._reached = found.records[-1].recovery_time if found.records else None
            new = [one for one in found.records if one.id not in self._at_work]
            if recent and (not full or 2 * len(new) < len(found)):
                self._recent = iter(())  # all is read, or both have met
            self._at_work = frozenset(one.id for one in found.records)
            if new or found.damaged or not more:
                return self._judged(Page(new, found.damaged, more=more))

    def _judged(self, page: Page[Decision]) -> Page[Decision]:
        try:
            return replace(page, diagnosis=self._judge(page)) if page.items else page
        except SPOILT:  # whoever repairs the page judges them one by one
            return page

    def _read_recent(self) -> Read[Decision]:
        if self._recent is None:
            self._recent = self._decisions.overdue_pages(self._size, within=RECENT, since=self._reached)
        return next(self._recent, Read())
