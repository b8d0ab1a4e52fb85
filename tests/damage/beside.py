"""Schedules and operations that are damaged while they are under way, and what became of each."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from recovery import Recovery, operations
from recovery.engine.operators.schedules import Schedules
from recovery.health.operator_records import judge_schedules
from recovery.health.operator_records import operations as operations_check
from recovery.operations import OperationRequest
from recovery.records.operation import UNDER_WAY
from recovery.store import schema
from tests.damage.draws import Damage, draw_some
from tests.waiting import wait_until

WHY = "a test"
EVERY = timedelta(seconds=1)
SCHEDULES, OPERATIONS = 12, 5
"""How many are damaged; `recovery doctor` names five at most of one kind."""
EACH, RATE = 10, 10.0
"""Processes of an operation, and how many of them a second: all are still under way when they are damaged."""
_OF_OPERATIONS = (schema.OPERATIONS, schema.OPERATION_RANGES, schema.OPERATION_RESULTS)


@dataclass
class Damaged:
    """A schedule or an operation, and what was done to it."""

    id: str | int
    damages: list[Damage]
    end: str = ""
    seen: str = ""

    def __str__(self) -> str:
        return f"{self.id}: {', '.join(map(str, self.damages))} → {self.seen}"


class Beside:
    """Schedules that start something each second, and operations at work; one of each is sound."""

    def __init__(self, app: Recovery, database: Any, seed: int) -> None:
        self._app, self._resources, self._database = app, app.resources, database
        self._chance = random.Random(seed)
        self.damaged: list[Damaged] = []

    def begin(self) -> None:
        """Add and order them, and wait until each is at work."""
        kept = Schedules(self._resources, by="me@here")
        self._names = [f"tick{number}" for number in range(SCHEDULES + 1)]
        for name in self._names:
            kept.add(name, "tick", {"schedule": EVERY}, WHY)
        groups = [str(number) for number in range(OPERATIONS + 1)]
        for group in groups:
            self._app.start_many("tick", [[] for _ in range(EACH)], labels={"group": group})
        ended = {"type": "tick", "state": "finished", "scheduledBy": None}
        wait_until(lambda: self._count(ended) == len(groups) * EACH, 30, "what is done again")
        self._numbers = [self._order(f"label.group:{group}") for group in groups]
        wait_until(lambda: all(map(self._has_started, self._names)), 30, "a process of each schedule")
        wait_until(lambda: all(map(self._has_ranges, self._numbers)), 30, "the ranges of each operation")

    def _order(self, selection: str) -> int:
        asked = OperationRequest("restart_from", selection, rate=RATE, apply=True)
        return operations.start(self._resources, asked, WHY, by="me").id

    def _count(self, query: Any) -> int:
        return int(self._database[schema.PROCESSES].count_documents(query))

    def damage(self) -> None:
        """Damage each but the last one of either kind."""
        for name in self._names[:-1]:
            self._damage(name, schema.SCHEDULES, {"_id": name})
        for number in self._numbers[:-1]:
            collection = self._chance.choice(_OF_OPERATIONS)
            one = {"_id": number} if collection == schema.OPERATIONS else {"operation": number}
            if not self._database[collection].find_one(one):
                collection, one = schema.OPERATIONS, {"_id": number}
            self._damage(number, collection, one)
        self._since: datetime = self._resources.store.now()

    def _damage(self, key: str | int, collection: str, query: Any) -> None:
        document = self._database[collection].find_one(query, sort=[("_id", 1)])
        damages = self._drawn(collection, document)
        for damage in damages:
            update = {"q": {"_id": document["_id"]}, "u": damage.update()}
            self._database.command("update", collection, updates=[update], bypassDocumentValidation=True)
        self.damaged.append(Damaged(key, damages))

    def _drawn(self, collection: str, document: Any) -> list[Damage]:
        while True:
            damages = draw_some(self._chance, collection, document)
            # Another rate is an operator's wish, for which those behind it wait.
            if not any(one.path == "rate" for one in damages):
                return damages

    def wait(self, seconds: float) -> list[Damaged]:
        """Wait until the sound ones have gone on, and each other goes on, has ended or is named. Return the others."""
        until = time.monotonic() + seconds
        wait_until(lambda: self._goes_on(self._names[-1]), seconds, "the sound schedule")
        left = self.damaged
        while left and time.monotonic() < until:
            left = [one for one in left if not self._is_settled(one)]
        wait_until(lambda: self._state(self._numbers[-1]) == "finished", 60, "the sound operation")
        return left

    def _is_settled(self, one: Damaged) -> bool:
        one.end = self._of_schedule(one) if isinstance(one.id, str) else self._of_operation(one)
        return bool(one.end)

    def _of_schedule(self, one: Damaged) -> str:
        name = str(one.id)
        if self._goes_on(name):
            return "goes on"
        read = self._resources.store.schedules.all_with_damaged()
        mine = [schedule for schedule in read.records if schedule.id == name]
        damaged = [damage for damage in read.damaged if damage.record == name]
        check = judge_schedules(mine, self._resources.store.now(), damaged)
        one.seen = f"{check.found}; {mine}"
        if check.level.name != "OK":
            return f"named: {check.found}"
        if mine and mine[0].state != "active":
            return f"{mine[0].state}, which an operator could have wanted"
        return ""

    def _of_operation(self, one: Damaged) -> str:
        state = self._state(int(one.id))
        one.seen = f"state {state!r}"
        if state not in {under_way.value for under_way in UNDER_WAY}:
            return f"over or planned: {state}"
        check = operations_check(self._resources)
        one.seen += f"; {check.found}"
        return f"named: {check.found}" if f"operation {one.id}:" in check.found else ""

    def _goes_on(self, name: str) -> bool:
        started = {"scheduledBy": name, "startedAt": {"$gt": self._since}}
        return self._database[schema.PROCESSES].find_one(started) is not None

    def _has_started(self, name: str) -> bool:
        return self._database[schema.PROCESSES].find_one({"scheduledBy": name}) is not None

    def _has_ranges(self, number: int) -> bool:
        return self._database[schema.OPERATION_RANGES].find_one({"operation": number}) is not None

    def _state(self, number: int) -> Any:
        return (self._database[schema.OPERATIONS].find_one({"_id": number}) or {}).get("state")
