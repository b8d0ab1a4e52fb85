"""Reading ahead: the next page of overdue decisions is read, and judged, while one is repaired.

Where several scan at once, on whatever machines, they share what is overdue by the ids of its processes
(`recovery.queue.places`). What one leaves that died is in the others' shares after a while.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from enum import StrEnum

from recovery.engine import Resources
from recovery.errors import BrokerError
from recovery.queue import Places
from recovery.records import Decision
from recovery.repair import Diagnosis
from recovery.rules import SPOILT
from recovery.scan.scanner import Page
from recovery.store.lifecycle.decision_queries import ALL, Share
from recovery.store.reading import Read

log = logging.getLogger(__name__)

NOT_KNOWN: Share = (0, 0)
Judge = Callable[[Page[Decision]], Diagnosis]
Lost = Callable[[int, Callable[[], Share]], Iterator[Read[Decision]]]
"""Pages of a size of what lost its message, of the share of whoever asks."""

RECENT = 10.0
"""Seconds for which what fell overdue has every other page: longer than from one run to the next."""
TAKEN_AGAIN = 10
"""Pages after which it is seen again who else scans."""


class Turn(StrEnum):
    """What a page is of."""

    LONGEST = "longest"
    """What is overdue longest."""
    LOST = "lost"
    """What lost its message, whatever its deadline."""
    RECENT = "recent"
    """What fell overdue just now."""


class ReadAhead:
    """The pages of one run, by turns.

    Of each turn there is one query, whose answer is read page by page, forward: to ask anew for each page, or to read
    backward, the server would go through what was overdue and is not any more, which it does not forget at once. So
    what becomes overdue meanwhile is for the next run.
    """

    def __init__(
        self,
        resources: Resources,
        size: int,
        judge: Judge,
        lost: Lost,
        *,
        name: str,
        longest_first: bool,
        alone: bool = True,
        has_place: bool = False,
        since: datetime | None = None,
    ) -> None:
        """Nothing is overdue that was to be done before `since`, if that is given."""
        self._decisions, self._size, self._judge, self._lost = resources.store.decisions, size, judge, lost
        self._places, self._name = Places(resources.settings.broker_url), name
        self.share: Share = ALL if alone else NOT_KNOWN
        """The place among those who scan, and how many they are."""
        self._left, self.has_place = size, has_place
        """Records until it is seen who else scans; and whether others may know of this one."""
        self._reading = {turn: self._read_of(turn) for turn in Turn}
        self._since = since
        self._turns = deque(Turn if longest_first else reversed(Turn))
        self._reached: datetime | None = None
        self._at_work: frozenset[str] = frozenset()
        self._beside = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead")
        self._next: Future[Page[Decision]] | None = None

    def __enter__(self) -> ReadAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._beside.shutdown()
        self._turns.clear()
        self._reading.clear()  # what is not read to its end is closed

    @property
    def is_alone(self) -> bool:
        """Whether nobody else scanned when that was seen last."""
        return self.share == ALL

    def leave(self) -> None:
        """Nothing is left: who scans on shares with one less."""
        if self.has_place:
            with suppress(BrokerError):  # after a while it counts no more
                self._places.leave(self._name)
            self.has_place = False

    def page(self) -> Page[Decision]:
        """The next page; it is the last if there is not `more`. Raises StoreError and BrokerError."""
        under_way = self._next or self._beside.submit(self._read)
        self._next = None
        page = under_way.result()
        if page.more:
            self._next = self._beside.submit(self._read)
        return page

    def _read(self) -> Page[Decision]:
        while self._turns:
            turn = self._turns.popleft()
            found: Read[Decision] = next(self._reading[turn], Read())
            new = [one for one in found.records if one.id not in self._at_work]
            if self._goes_on(turn, found, len(new)):
                self._turns.append(turn)
            if new or found.damaged:
                self._at_work = frozenset(one.id for one in found.records)
                return self._judged(Page(new, found.damaged, more=bool(self._turns)))
        return Page()

    def _goes_on(self, turn: Turn, found: Read[Decision], new: int) -> bool:
        full = len(found) == self._size
        if turn is Turn.RECENT:
            return full and 2 * new > len(found)  # else both have met
        if turn is Turn.LONGEST:
            self._reached = found.records[-1].recovery_time if found.records else None
            if not full and Turn.RECENT in self._turns:
                self._turns.remove(Turn.RECENT)  # they were among these
        self._left -= len(found)
        if self._left <= 0 and self._take_place():
            for shared in {turn, *self._turns} - {Turn.RECENT}:
                self._reading[shared] = self._read_of(shared)
            return True
        return full or (turn is Turn.LOST and len(found) > 0)  # there, a page ends with its queue

    def _take_place(self) -> bool:
        """There is more than a page, and others scan just now, perhaps: whether the share is another than before."""
        before, self._left, self.has_place = self.share, TAKEN_AGAIN * self._size, True
        try:
            self.share = self._places.take(self._name)
        except BrokerError as error:
            log.debug("nothing is shared with other scanners (%s)", error)
            self.share = ALL
        return self.share != before

    def _judged(self, page: Page[Decision]) -> Page[Decision]:
        try:
            return replace(page, diagnosis=self._judge(page)) if page.items else page
        except SPOILT:  # whoever repairs the page judges them one by one
            return page

    def _read_of(self, turn: Turn) -> Iterator[Read[Decision]]:
        if turn is Turn.LOST:
            yield from self._lost(self._size, self._own_share)
        elif turn is Turn.RECENT:
            yield from self._decisions.overdue_pages(
                self._size, within=RECENT, since=self._reached, share=self._own_share()
            )
        else:
            yield from self._decisions.overdue_pages(self._size, since=self._since, share=self._own_share())

    def _own_share(self) -> Share:
        if self.share == NOT_KNOWN:
            self._take_place()
        return self.share
