"""The Decision scanner: decisions whose deadline is past, live ones that lack a deadline, and lost messages.

Rules: WORK_TIMEOUT, TASK_TIMEOUT, DUE, MESSAGE_LOST (NO_ACTORS, ACTORS_LAG), DECISION_NOT_APPLIED, DEADLINE_MISSING,
RECORD_DAMAGED; and ABORT_CUT_OFF of what is live and of an aborted process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from recovery.engine import Outbox, Resources
from recovery.records import Decision, DecisionState
from recovery.repair import Diagnosis, look_around
from recovery.rules import SPOILT, judge_decision, of_aborted
from recovery.scan.lost_messages import LostMessages
from recovery.scan.scanner import MAX_SECONDS, Page, Scanner, ScanResult
from recovery.store.record_reading import Read

Item = TypeVar("Item")

RECENT_SECONDS = 10.0
"""Seconds for which a decision counts as having fallen overdue just now: longer than from one run to the next."""


class PageKind(StrEnum):
    """A kind of pages."""

    LONGEST = "longest"
    """Decisions that are overdue longest."""
    LOST = "lost"
    """Queued decisions that lost their message, whatever their deadline."""
    RECENT = "recent"
    """Decisions that fell overdue within the last RECENT_SECONDS."""


class DecisionScanner(Scanner[Decision]):
    """Looks at overdue decisions and lost messages, a page of `scan_batch` at a time.

    The kinds of pages (`PageKind`) take turns. Decisions that fell overdue just now are few, and would otherwise wait
    until an older storm is worked off. A run that follows one that ended for its time begins with the next turn. While
    one page is repaired, the next one is read and judged.

    A decision that stays overdue after its repair, because its records are damaged or another program wrote it, is
    postponed. Otherwise a page of them would hide all others.
    """

    name = "decisions"
    repairs_move_deadlines = True

    def __init__(self, resources: Resources, outbox: Outbox) -> None:
        super().__init__(resources, outbox)
        self.page = resources.settings.scan_batch
        self._lost = LostMessages(resources, redis_loss=self.repairer.redis_loss)
        self._turns = deque(PageKind)
        """The next run begins with the first."""
        self._reached: datetime | None = None
        """The deadline up to which the longest overdue were read in this run."""
        self._seen_filling: set[str] = set()
        self._pages: Iterator[Page[Decision]] = iter(())

    def run_once(self, seconds: float = MAX_SECONDS) -> ScanResult:
        self._seen_filling = set()
        with closing(self._all_pages()) as self._pages:
            result = super().run_once(seconds)
        self._lost.ended(well=result.error is None)
        return result

    def find(self) -> Page[Decision]:
        return next(self._pages, Page())

    def _all_pages(self) -> Generator[Page[Decision]]:
        """Yield the pages of a run. What lacks a deadline comes first: it is stamped then, and overdue."""
        while lacking := self.resources.store.decisions.without_deadline(self.page):
            yield Page(lacking.records, lacking.damaged, more=True)
            if len(lacking) < self.page:
                break
        yield from prefetched(self._by_turns())

    def _by_turns(self) -> Iterator[Page[Decision]]:
        """Yield pages of each kind, judged, by turns. There is one query of each kind, so decisions that fall overdue
        meanwhile are for the next run."""
        sources: dict[PageKind, Iterator[Read[Decision]]] = {
            PageKind.LONGEST: self.resources.store.decisions.overdue_pages(self.page),
            PageKind.LOST: self._lost.pages(self.page),
            PageKind.RECENT: self._just_overdue(),
        }
        turns, being_repaired = deque(self._turns), frozenset[str]()
        self._reached = None
        while turns:
            turn = turns.popleft()
            found: Read[Decision] = next(sources[turn], Read())
            new = [one for one in found.records if one.id not in being_repaired]
            if turn is PageKind.LONGEST:
                self._reached = found.records[-1].recovery_time if found.records else None
                if len(found) < self.page and PageKind.RECENT in turns:
                    turns.remove(PageKind.RECENT)  # they were among these
            # RECENT ends where it reads what LONGEST has read.
            if len(found) and (turn is not PageKind.RECENT or 2 * len(new) > len(found)):
                turns.append(turn)
            if new or found.damaged:
                being_repaired = frozenset(one.id for one in found.records)
                yield self._judged(Page(new, found.damaged, more=True))
                while self._turns[-1] is not turn:  # the page was taken: the turn is over
                    self._turns.rotate(-1)

    def _just_overdue(self) -> Iterator[Read[Decision]]:
        decisions = self.resources.store.decisions
        yield from decisions.overdue_pages(self.page, within=RECENT_SECONDS, since=self._reached)

    def _judged(self, page: Page[Decision]) -> Page[Decision]:
        try:
            return replace(page, diagnosis=self.judge(page)) if page.items else page
        except SPOILT:  # whoever repairs the page judges them one by one
            return page

    def key(self, item: Decision) -> str:
        return item.id

    def postpone(self, record: Any) -> None:
        self.resources.store.task_deadlines.postpone_damaged(record)

    def judge(self, page: Page[Decision]) -> Diagnosis:
        decisions = page.items
        queues = {decision.actor for decision in decisions if decision.state is DecisionState.QUEUED}
        # What is requeued for another reason fills its queue as well: that is looked at before, once a run.
        filling = {decision.actor for decision in decisions} - self._seen_filling
        self._seen_filling |= filling
        around = look_around(self.resources, queues=queues | filling, looks_again=True)
        aborted = self.resources.store.processes.aborted({decision.process_id for decision in decisions})
        over = {one.process_id: of_aborted(one) for one in decisions if one.process_id in aborted}
        found = (judge_decision(one, around) for one in decisions if one.process_id not in aborted)
        return Diagnosis([*over.values(), *filter(None, found)], around)

    def postpone_healthy(self, page: Sequence[Decision]) -> None:
        # While a page is not full, nothing stands in another's way.
        if len(page) >= self.page:
            self.resources.store.task_deadlines.postpone_idle([decision.id for decision in page])


def prefetched(pages: Iterator[Item]) -> Generator[Item]:
    """Yield these pages. While the caller is at work on one, another thread reads the next."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as thread:
        coming = thread.submit(next, pages, None)
        while (page := coming.result()) is not None:
            coming = thread.submit(next, pages, None)
            yield page
