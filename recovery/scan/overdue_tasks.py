"""The Decision scanner: decisions whose deadline is past, and live ones that lack a deadline.

Rules: WORK_TIMEOUT, TASK_TIMEOUT, DUE, MESSAGE_LOST (NO_ACTORS, ACTORS_LAG), DECISION_NOT_APPLIED, DEADLINE_MISSING,
RECORD_DAMAGED; and ABORT_CUT_OFF of what is live and of an aborted process.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from recovery.engine import Applier, Resources
from recovery.records import Decision, DecisionState
from recovery.repair import Diagnosis, look_around
from recovery.rules import Finding, judge_decision, of_aborted
from recovery.scan.ahead import ReadAhead
from recovery.scan.lost_messages import LostMessages
from recovery.scan.scanner import MAX_SECONDS, Page, Scanner, ScanResult


class DecisionScanner(Scanner[Decision]):
    """Looks at overdue decisions, a page of `scan_batch` at a time.

    The longest overdue come first. Where there is more than a page, every other page is of those that fell overdue just
    now: they are few, and would else wait until all of a storm that is older is worked off. So it is as well where a
    page takes longer than a run may: the next run goes on with the page that was read ahead.

    What stays overdue after its repair (its records are damaged, or another program wrote it) is postponed: a page of
    such would hide all others.
    """

    name = "decisions"
    repairs_move_deadlines = True

    def __init__(self, resources: Resources, applier: Applier) -> None:
        super().__init__(resources, applier)
        self.page = resources.settings.scan_batch
        self._seen_filling: set[str] = set()
        self._odd_left = True
        self._lost = LostMessages(resources, redis_loss=self.repairer.redis_loss)
        self._ahead = ReadAhead(resources, self.judge, self._lost.pages, secrets.token_hex(8))

    def run_once(self, seconds: float = MAX_SECONDS) -> ScanResult:
        self._seen_filling, self._odd_left = set(), True
        with self._ahead.run(self.page):
            result = super().run_once(seconds)
        self._lost.ended(well=result.error is None)
        if result.error is not None or not result.more:
            self._ahead.end()
        return result

    def look_past(self) -> ScanResult:
        self._ahead.end()
        return super().look_past()

    def find(self, limit: int) -> Page[Decision]:
        if self._odd_left:
            odd = self.resources.store.decisions.without_deadline(limit)
            self._odd_left = len(odd) >= limit
            if odd:
                return Page(odd.records, odd.damaged, more=True)
        return self._ahead.page()

    def key(self, item: Decision) -> str:
        return item.id

    def postpone(self, record: Any) -> None:
        self.resources.store.requeues.postpone_damaged(record)

    def judge(self, page: Page[Decision]) -> Diagnosis:
        decisions = page.items
        queues = {decision.actor for decision in decisions if decision.state is DecisionState.QUEUED}
        # What is requeued for another reason fills its queue as well: that is looked at before, once a run.
        filling = {decision.actor for decision in decisions} - self._seen_filling
        self._seen_filling |= filling
        around = look_around(self.resources, queues=queues | filling, looks_again=True)
        aborted = self.resources.store.processes.aborted({decision.process_id for decision in decisions})
        over: dict[str, Finding] = {}
        if aborted:  # of a page hardly ever one is
            over = {one.process_id: of_aborted(one) for one in decisions if one.process_id in aborted}
            decisions = [decision for decision in decisions if decision.process_id not in aborted]
        found = (f for decision in decisions if (f := judge_decision(decision, around)))
        return Diagnosis([*over.values(), *found], around)

    def postpone_healthy(self, page: Sequence[Decision]) -> None:
        # While a page is not full, nothing stands in another's way.
        if len(page) >= self.page:
            self.resources.store.requeues.postpone_idle([decision.id for decision in page])
