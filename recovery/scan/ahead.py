"""Reading ahead: the next page of overdue decisions is read, and judged, while one is repaired.

Where several scan at once, on whatever machines, they share what is overdue by the ids of its processes
(`recovery.queue.coordination`). What one leaves that died is in the others' shares after a while.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
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
from recovery.store.lifecycle.decision_queries import ALL, Share, is_within
from recovery.store.record_reading import Read

log = logging.getLogger(__name__)

NOT_KNOWN: Share = (0, 0)
Judge = Callable[[Page[Decision]], Diagnosis]
Lost = Callable[[int, Callable[[], Share]], Iterator[Read[Decision]]]
"""Pages of a size of what lost its message, of the share of whoever asks."""

RECENT = 10.0
"""Seconds for which what fell overdue has every other page: longer than from one run to the next."""
TAKEN_AGAIN = 10
"""Pages after which it is seen again who else scans; sooner after others were seen to begin or to end, since they
seldom do so alone."""


class Turn(StrEnum):
    """What a page is of."""

    LONGEST = "longest"
    """What is overdue longest."""
    LOST = "lost"
    """What lost its message, whatever its deadline."""
    RECENT = "recent"
    """What fell overdue just now."""


class ReadAhead:
    """The pages of one scanner, run by run, by turns.

    Of each turn there is one query, whose answer is read page by page, forward: to ask anew for each page, or to read
    backward, the server would go through what was overdue and is not any more, which it does not forget at once. So
    what becomes overdue meanwhile is for the next run; and a run that goes on with one that ended for its time goes on
    with the answer of what is overdue longest, and with the page that was read ahead.
    """

    def __init__(self, resources: Resources, judge: Judge, lost: Lost, name: str) -> None:
        """`name` is this scanner's among others."""
        self._decisions, self._judge, self._lost = resources.store.decisions, judge, lost
        self._places, self._name = Places(resources.settings.broker_url), name
        self.share = ALL
        """The place among those who scan, and how many they are."""
        self._has_place = False
        """Whether others may know of this one."""
        self._size, self._left, self._pages = 0, 0, 1
        """Of a page; records until it is seen who else scans; and the pages from the last such look to that one."""
        self._reading: dict[Turn, Iterator[Read[Decision]]] = {}
        self._turns = deque[Turn]()
        self._asked_before = False
        """Whether what is overdue longest was asked for by a run before this one."""
        self._reached: datetime | None = None
        self._at_work: frozenset[str] = frozenset()
        self._next: Future[Page[Decision]] | None = None
        self._kept: Future[Page[Decision]] | None = None
        """What the run before had read ahead."""

    @contextmanager
    def run(self, size: int) -> Iterator[None]:
        """Within, pages of this size are read. Goes on with the run before, unless that was its `end`, or it failed."""
        self._size, self._left = size, size
        self._asked_before = Turn.LONGEST in self._turns
        for turn in Turn:
            if turn is not Turn.LONGEST or not self._asked_before:
                self._reading[turn] = self._read_of(turn)
        # Those first that the run before left: where a run has time for a single page, each has its turn all the same.
        self._turns.extend(turn for turn in Turn if turn not in self._turns)
        self._kept, self._next = self._next or self._kept, None
        try:
            with ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead") as self._beside:
                yield
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Nothing is left, or what is left is to be asked for anew: who scans on shares with one less."""
        self._forget()
        if self._has_place:
            with suppress(BrokerError):  # after a while it counts no more
                self._places.leave(self._name)
            self._has_place = False

    def _forget(self) -> None:
        self._turns.clear()
        self._reading.clear()  # what is not read to its end is closed
        self._next = self._kept = None
        self._reached, self._at_work, self._pages = None, frozenset(), 1
        if not self.is_alone:
            self.share = NOT_KNOWN

    @property
    def is_alone(self) -> bool:
        """Whether nobody else scanned when that was seen last."""
        return self.share == ALL

    def page(self) -> Page[Decision]:
        """The next page; it is the last if there is not `more`. Raises StoreError and BrokerError."""
        under_way = self._next or self._beside.submit(self._read_again if self._kept else self._read)
        self._next = None
        page = under_way.result()
        if page.more:
            self._next = self._beside.submit(self._read)
        return page

    def _read(self) -> Page[Decision]:
        while self._turns:
            turn = self._turns.popleft()
            found: Read[Decision] = next(self._reading[turn], Read())
            share = self.share
            new = [one for one in found.records if one.id not in self._at_work]
            if self._goes_on(turn, found, len(new)):
                self._turns.append(turn)
            if share != self.share:  # some of these are in others' shares now
                new = [one for one in new if is_within(self.share, one.id)]
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
            if not full and self._asked_before:  # what fell overdue since then was not among these
                self._asked_before = False
                self._reading[turn] = self._read_of(turn)
                return True
            if not full and Turn.RECENT in self._turns:
                self._turns.remove(Turn.RECENT)  # they were among these
        self._left -= len(found)
        if self._left <= 0 and self._take_place():
            for shared in {turn, *self._turns} - {Turn.RECENT}:
                self._reading[shared] = self._read_of(shared)
            self._asked_before = False
            return True
        return full or (turn is Turn.LOST and len(found) > 0)  # there, a page ends with its queue

    def _take_place(self) -> bool:
        """There is more than a page, and others scan just now, perhaps: whether the share is another than before."""
        before, self._has_place = self.share, True
        try:
            self.share = self._places.take(self._name)
        except BrokerError as error:
            log.debug("nothing is shared with other scanners (%s)", error)
            self.share = ALL
        self._pages = 1 if self.share != before else min(2 * self._pages, TAKEN_AGAIN)
        self._left = self._pages * self._size
        return self.share != before

    def _read_again(self) -> Page[Decision]:
        """What the run before had read ahead. It is judged again: what is around it may be another by now; and there is
        more, since each run asks anew what there is of the other turns."""
        kept, self._kept = self._kept, None
        if kept is None or kept.exception() is not None or not (page := kept.result()):
            return self._read()
        return self._judged(replace(page, diagnosis=None, more=True))

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
            yield from self._decisions.overdue_pages(self._size, share=self._own_share())

    def _own_share(self) -> Share:
        if self.share == NOT_KNOWN:
            self._take_place()
        return self.share
