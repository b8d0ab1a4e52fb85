"""The Decision scanner: overdue decisions, live decisions without a deadline, and lost messages.

Rules: WORK_TIMEOUT, TASK_TIMEOUT, DUE, MESSAGE_LOST (NO_ACTORS, ACTORS_LAG), DECISION_NOT_APPLIED, DEADLINE_MISSING,
RECORD_DAMAGED, and ABORT_CUT_OFF for live decisions of aborted processes.
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
"""Seconds for which a decision counts as recently overdue: longer than the time between two runs."""


class PageKind(StrEnum):
    """A kind of pages."""

    LONGEST = "longest"
    """Decisions that have been overdue longest."""
    LOST = "lost"
    """Queued decisions that lost their message, whatever their deadline."""
    RECENT = "recent"
    """Decisions that became overdue within the last RECENT_SECONDS."""


class DecisionScanner(Scanner[Decision]):
    """Looks at overdue decisions and lost messages, in pages of `scan_batch`.

    Pages of the kinds in `PageKind` alternate. Recently overdue decisions are few, and would otherwise wait until an
    older backlog is done. If a run ends because of its time limit, the next run begins with the next kind. While one
    page is repaired, the next page is read and judged.

    A decision that stays overdue after its repair, because its records are damaged or another program wrote it, is
    postponed. Otherwise a page of such decisions would hide all others.
    """

    name = "decisions"
    repairs_move_deadlines = True

    def __init__(self, resources: Resources, outbox: Outbox) -> None:
        super().__init__(resources, outbox)
        self.page = resources.settings.scan_batch
        self._lost = LostMessages(resources, redis_loss=self.repairer.redis_loss)
        self._turns = deque(PageKind)
        """Kinds of pages in order. The next run begins with the first."""
        self._reached: datetime | None = None
        """The deadline up to which this run has read the decisions that are overdue longest."""
        self._checked_queues: set[str] = set()
        self._pages: Iterator[Page[Decision]] = iter(())

    def run_once(self, seconds: float = MAX_SECONDS) -> ScanResult:
        self._checked_queues = set()
        with closing(self._all_pages()) as self._pages:
            result = super().run_once(seconds)
        self._lost.ended(well=result.error is None)
        return result

    def find(self) -> Page[Decision]:
        return next(self._pages, Page())

    def _all_pages(self) -> Generator[Page[Decision]]:
        """Yield the pages of a run.

        Decisions without a deadline come first, because they are stamped and then overdue.
        """
        while without_deadline := self.resources.store.decisions.without_deadline(self.page):
            yield Page(without_deadline.records, without_deadline.damaged, more=True)
            if len(without_deadline) < self.page:
                break
        yield from prefetched(self._by_turns())

    def _by_turns(self) -> Iterator[Page[Decision]]:
        """Yield judged pages, alternating between the kinds.

        There is one query per kind, so decisions that become overdue meanwhile are left for the next run.
        """
        sources: dict[PageKind, Iterator[Read[Decision]]] = {
            PageKind.LONGEST: self.resources.store.decisions.overdue_pages(self.page),
            PageKind.LOST: self._lost.pages(self.page),
            PageKind.RECENT: self._just_overdue(),
        }
        kinds, previous_ids = deque(self._turns), frozenset[str]()
        self._reached = None
        while kinds:
            kind = kinds.popleft()
            decisions: Read[Decision] = next(sources[kind], Read())
            unseen = [decision for decision in decisions.records if decision.id not in previous_ids]
            if kind is PageKind.LONGEST:
                self._reached = decisions.records[-1].recovery_time if decisions.records else None
                if len(decisions) < self.page and PageKind.RECENT in kinds:
                    kinds.remove(PageKind.RECENT)  # the page of LONGEST contains them
            # RECENT ends once at least half of its page was in the previous page, which is one of LONGEST.
            if len(decisions) and (kind is not PageKind.RECENT or 2 * len(unseen) > len(decisions)):
                kinds.append(kind)
            if unseen or decisions.damaged:
                previous_ids = frozenset(decision.id for decision in decisions.records)
                yield self._judged(Page(unseen, decisions.damaged, more=True))
                while self._turns[-1] is not kind:  # the caller took the page, so this kind's turn is over
                    self._turns.rotate(-1)

    def _just_overdue(self) -> Iterator[Read[Decision]]:
        decisions = self.resources.store.decisions
        yield from decisions.overdue_pages(self.page, within=RECENT_SECONDS, since=self._reached)

    def _judged(self, page: Page[Decision]) -> Page[Decision]:
        try:
            return replace(page, diagnosis=self.judge(page)) if page.items else page
        except SPOILT:  # the scanner judges them one by one when it repairs the page
            return page

    def key(self, item: Decision) -> str:
        return item.id

    def postpone(self, record: Any) -> None:
        self.resources.store.task_deadlines.postpone_damaged(record)

    def judge(self, page: Page[Decision]) -> Diagnosis:
        decisions = page.items
        queues = {decision.actor for decision in decisions if decision.state is DecisionState.QUEUED}
        # Requeues for other reasons fill queues too, so the state of these queues is read first, once per run.
        newly_checked = {decision.actor for decision in decisions} - self._checked_queues
        self._checked_queues |= newly_checked
        surroundings = look_around(self.resources, queues=queues | newly_checked, looks_again=True)
        aborted = self.resources.store.processes.aborted({decision.process_id for decision in decisions})
        findings_of_aborted = {
            decision.process_id: of_aborted(decision) for decision in decisions if decision.process_id in aborted
        }
        findings = (
            judge_decision(decision, surroundings) for decision in decisions if decision.process_id not in aborted
        )
        return Diagnosis([*findings_of_aborted.values(), *filter(None, findings)], surroundings)

    def postpone_healthy(self, page: Sequence[Decision]) -> None:
        # If the page is not full, it hides no other decision.
        if len(page) >= self.page:
            self.resources.store.task_deadlines.postpone_idle([decision.id for decision in page])


def prefetched(pages: Iterator[Item]) -> Generator[Item]:
    """Yield these pages. While the caller handles one page, another thread reads the next."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prefetch") as executor:
        next_page = executor.submit(next, pages, None)
        while (page := next_page.result()) is not None:
            next_page = executor.submit(next, pages, None)
            yield page
