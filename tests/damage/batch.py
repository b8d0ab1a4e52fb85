"""A batch of processes in all states, a record of each of which is damaged, and what became of each."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from recovery import Recovery, Settings
from recovery.engine.operators.saved_searches import save_search
from recovery.errors import RecoveryError
from recovery.health import look
from recovery.records import Marker, ProcessState
from recovery.rules import Repair, Rule
from recovery.store import schema
from tests.damage.app import app as served
from tests.damage.draws import Damage, draw_some, draw_wrong
from tests.waiting import wait_until

SHAPES = {
    "working": ("gated", "working"),
    "queued": ("held", "queued"),
    "delayed": ("add", "delayed"),
    "retried": ("flaky", "delayed"),
    "broken": ("failing", "finished"),
    "finished": ("add", "finished"),
}
"""{shape of a process: (the actor of its first task, the state in which that stands)}."""
RESULT = 3
BESIDE = (
    *(schema.INTERRUPTIONS, schema.MARKERS, schema.WORKERS, schema.ACTORS, schema.PROCESS_TYPES, schema.QUEUES),
    *(schema.SCANNERS, schema.CENSUS, schema.LEFT_COUNTS, schema.AUDIT_LOG, schema.SAVED_SEARCHES),
)
"""Collections beside those that describe processes."""
_FOR_A_PERSON = {(Rule.NO_ACTORS, Repair.WAIT), (Rule.RECORD_DAMAGED, Repair.WAIT)}
"""Findings that wait until a person does something."""


@dataclass
class Victim:
    """A process with a damaged record."""

    id: str
    shape: str
    damages: list[Damage]
    record: Any
    runs: bool = True
    end: str = ""
    """How it ended well, or was named; empty: neither yet."""
    seen: str = ""
    """What is wrong with how it stands."""

    def __str__(self) -> str:
        return f"{self.shape} {self.id}: {', '.join(map(str, self.damages))} of {self.record} → {self.seen}"


class Batch:
    """Processes that stand still, and are damaged; `go` lets them go on."""

    def __init__(self, settings: Settings, folder: Path, seed: int) -> None:
        self.app = Recovery(settings)
        self.app.actors = served.actors
        self.folder, self.chance = folder, random.Random(seed)
        self.database: Any = MongoClient(settings.mongo_uri, tz_aware=True)[settings.database]
        self.victims: list[Victim] = []
        self.sound: list[str] = []
        self.beside: list[Damage] = []

    def start(self, count: int, sound: int) -> None:
        """Start `count` processes that are to be damaged and `sound` others, and wait until all stand still."""
        shapes = [list(SHAPES)[number % len(SHAPES)] for number in range(count + sound)]
        started = self.app.start_many("order", [[shape, str(self.folder)] for shape in shapes])
        ids = [one.id for one in started]
        wait_until(lambda: not list(self._moving(ids, shapes)), 40, "all processes in their states")
        self.shape_of = dict(zip(ids, shapes, strict=True))
        self.sound = ids[count:]
        self._ids = ids[:count]

    def damage(self) -> None:
        """Damage one record of each victim."""
        for process_id in self._ids:
            collection = self.chance.choice(schema.OF_PROCESSES)
            found = {"_id": {"$regex": f"^{process_id}"}}
            document = self.chance.choice(list(self.database[collection].find(found).sort("_id", 1)))
            damages = draw_some(self.chance, collection, document)
            for damage in damages:
                update = {"q": {"_id": document["_id"]}, "u": damage.update()}
                try:
                    self.database.command("update", collection, updates=[update], bypassDocumentValidation=True)
                except Exception as error:
                    raise AssertionError(f"{damage} of {document}") from error
            self.victims.append(Victim(process_id, self.shape_of[process_id], damages, document["_id"]))

    def damage_beside(self, count: int) -> None:
        """Damage one record in each of `count` other collections that have one."""
        store = self.app.resources.store
        save_search(self.app.resources, "orders", "type:order", "what the shop asks for", by="me@here")
        store.markers.write(Marker(id="order/tea", type="order", key="tea", kind="Away", process="p"), store.now())
        for collection in self.chance.sample(BESIDE, count):
            if document := self.database[collection].find_one({}, sort=[("_id", 1)]):
                damage = draw_wrong(self.chance, collection)
                update = {"q": {"_id": document["_id"]}, "u": damage.update()}
                self.database.command("update", collection, updates=[update], bypassDocumentValidation=True)
                self.beside.append(damage)

    def go(self) -> None:
        (self.folder / "go").touch()
        self.app.resources.store.actors.unblock("held")

    def wait(self, seconds: float) -> list[Victim]:
        """Wait until each sound process has ended, and each victim has ended well or is named. Return the others."""
        until = time.monotonic() + seconds
        unsound: list[str] = []

        def all_sound() -> bool:
            unsound[:] = [f"{self.shape_of[one]} {one}" for one in self._unsound()]
            return not unsound

        try:
            wait_until(all_sound, seconds, "the ends of the sound processes")
        except AssertionError as late:
            raise AssertionError(f"{late}: {unsound}") from None
        left = self.victims
        while left and time.monotonic() < until:
            left = [one for one in left if not self._is_settled(one)]
        # What nobody repairs by itself, since nothing else shows it, `recovery check` names.
        return [one for one in left if not self._is_told(one)]

    def _is_told(self, victim: Victim) -> bool:
        findings = look(self.app.resources, victim.id).findings
        told = [f.evidence for f in findings if f.record == victim.record and f.rule is Rule.RECORD_DAMAGED]
        victim.end = f"named: {told[0]}" if any(one.field in text for one in victim.damages for text in told) else ""
        return bool(victim.end)

    def _is_settled(self, victim: Victim) -> bool:
        document = self.database["processes"].find_one({"_id": victim.id}) or {}
        victim.seen = f"state {document.get('state')!r}"
        state = document.get("state")
        victim.runs = state == ProcessState.RUNNING.value
        if victim.shape == "broken":
            if state == ProcessState.BROKEN.value and isinstance(document.get("error"), dict):
                victim.end = "broken as it should be"
        elif state == ProcessState.FINISHED.value and document.get("result") == str(RESULT):
            victim.end = "finished with its result"
        elif state == ProcessState.FINISHED.value and any(map(_is_another_value, victim.damages)):
            victim.end = "finished with what another program wrote"
        elif state == ProcessState.BROKEN.value:
            told = str(document.get("error"))
            victim.seen = f"broken: {told[:200]}"
            if any(one.field in told for one in victim.damages) or str(victim.record) in told:
                victim.end = "broken for what is damaged"
        if not victim.end:
            victim.end = self._named(victim) or self._set_off(victim)
        return bool(victim.end)

    def _set_off(self, victim: Victim) -> str:
        """Return whether a task waits for a time that could as well be its own; nobody can tell it from one."""
        if not any(one.path in ("eta", "delay") for one in victim.damages):
            return ""
        document = self.database["decisions"].find_one({"_id": victim.record}) or {}
        return "delayed, as it could have been scheduled" if document.get("state") == "delayed" else ""

    def _named(self, victim: Victim) -> str:
        try:
            findings = look(self.app.resources, victim.id).findings
        except RecoveryError as error:
            victim.seen += f"; look: {error}"
            return ""
        victim.seen += f"; {[(f.rule.value, f.repair.value, f.evidence[:100]) for f in findings]}"
        if not victim.runs and (findings or _was_aborted(victim)):
            return "at rest, for `recovery check`"
        named = [f for f in findings if f.repair is Repair.REPORT or (f.rule, f.repair) in _FOR_A_PERSON]
        return f"named: {named[0].evidence}" if named else ""

    def _moving(self, ids: list[str], shapes: list[str]) -> Iterator[str]:
        ended = {
            one["_id"]
            for one in self.database["processes"].find({"state": {"$ne": "running"}, "recoveryTime": None}, {"_id": 1})
        }
        standing = {
            (one["_id"].partition("/")[0], one["actor"], one["state"])
            for one in self.database["decisions"].find({}, {"actor": 1, "state": 1})
        }
        for process_id, shape in zip(ids, shapes, strict=True):
            # On a slow machine the delay of the first ones may be over when the last one stands.
            is_delayed = shape == "delayed" and (process_id, "add", "finished") in standing
            is_at_rest = shape in ("broken", "finished")
            if not (is_delayed or (process_id in ended if is_at_rest else (process_id, *SHAPES[shape]) in standing)):
                yield process_id

    def _unsound(self) -> Iterator[str]:
        found = self.database["processes"].find({"_id": {"$in": self.sound}}, {"state": 1, "result": 1})
        for document in found:
            shape = self.shape_of[document["_id"]]
            wanted = ("broken", None) if shape == "broken" else ("finished", str(RESULT))
            if (document["state"], document.get("result")) != wanted:
                yield document["_id"]


def _is_another_value(damage: Damage) -> bool:
    """Whether it is a value that a task could have had, which nobody can tell from its own."""
    return damage.path in ("outcome.value", "result") and damage.value == "2026"


def _was_aborted(victim: Victim) -> bool:
    """Whether another program ended the process as an abort does, which nobody can tell from an abort."""
    return any((one.path, one.value) == ("state", ProcessState.ABORTED.value) for one in victim.damages)
