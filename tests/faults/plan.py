"""What befalls one actor of a test, and at which of its steps."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.faults.halves import by_half


class Died(BaseException):
    """The process that took this step is gone. No `except Exception` of ours may catch it."""


class Kind(StrEnum):
    """A fault. PAUSE is none by itself: there the test lets others act."""

    BEFORE = "the connection is lost, nothing was done"
    AFTER = "done, and the reply is lost"
    HALF = "half of it done, and the connection is lost"
    AWAY = "from here on the server is away"
    DIES = "dies before"
    DIES_AFTER = "dies after"
    DIES_HALF = "dies with half of it done"
    PAUSE = "pauses before"
    PAUSE_AFTER = "pauses after"
    PAUSE_HALF = "pauses with half of it done"
    KILL = "SIGKILL before"
    KILL_AFTER = "SIGKILL after"
    KILL_HALF = "SIGKILL with half of it done"


AFTERWARDS = (Kind.AFTER, Kind.DIES_AFTER, Kind.PAUSE_AFTER, Kind.KILL_AFTER)
HALFWAY = (Kind.HALF, Kind.DIES_HALF, Kind.PAUSE_HALF, Kind.KILL_HALF)
DEATHS, PAUSES = (Kind.DIES, Kind.DIES_AFTER, Kind.DIES_HALF), (Kind.PAUSE, Kind.PAUSE_AFTER, Kind.PAUSE_HALF)
KILLS = (Kind.KILL, Kind.KILL_AFTER, Kind.KILL_HALF)
LOST = (Kind.BEFORE, Kind.AFTER, Kind.HALF, Kind.AWAY)

Lost = Callable[[str], Exception]


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at the `place`-th step (from 0) that is taken, or at the `place`-th of those named `step`."""

    kind: Kind
    place: int = 0
    step: str = ""

    def __repr__(self) -> str:
        return f"Fault(Kind.{self.kind.name}, {self.place}{f', {self.step!r}' if self.step else ''})"


class Plan:
    """The faults of one actor, each of which happens once, and what was seen of them."""

    def __init__(self, *faults: Fault, pause: Callable[[str], None] | None = None) -> None:
        """`pause` is called at a PAUSE with the step's name, and returns when the actor may go on."""
        self.faults = faults
        self.told: list[str] = []
        self.pause = pause
        self.cut_off = False
        """Whether a step was not done, or its end not told."""
        self._away = False
        self._counts: Counter[str] = Counter()

    @classmethod
    def seeded(cls, seed: int, kinds: Sequence[Kind], *, most: int = 2, places: int = 20) -> Plan:
        """Up to `most` faults of these kinds, the same for the same seed."""
        chance = random.Random(seed)
        return cls(*(Fault(chance.choice(kinds), chance.randrange(places)) for _ in range(chance.randint(1, most))))

    def add(self, kind: Kind, step: str, times: int = 1) -> None:
        """Let this happen to the next steps of this name."""
        self.faults += tuple(Fault(kind, self._counts[step] + place, step) for place in range(times))

    def __repr__(self) -> str:
        return f"Plan({', '.join(map(repr, self.faults))})"

    def take(self, name: str, step: Callable[..., Any], lost: Lost | None, *args: Any, **kw: Any) -> Any:
        """Take the step of this name, with what is planned for it. `lost` makes the error of a lost connection;
        a step without one asks no server, and can only pause or be the last."""
        if self._away and lost is not None:
            raise lost(f"{name}: still away")
        here = [
            fault.kind
            for fault in self.faults
            if fault.step in ("", name) and fault.place == self._counts[fault.step]
            if lost is not None or fault.kind not in (*LOST, *HALFWAY)
        ]
        self._counts.update(("", name))
        halfway = [kind for kind in here if kind in HALFWAY]
        for kind in here:
            self.told.append(f"{name}: {kind}")
            if kind not in (*AFTERWARDS, *HALFWAY):
                self._happen(kind, name, lost)

        def between() -> None:
            for kind in halfway:
                self._happen(kind, name, lost)

        result = by_half(name, step, args, kw, between) if halfway else step(*args, **kw)
        for kind in here:
            if kind in AFTERWARDS:
                self._happen(kind, name, lost)
        return result

    def _happen(self, kind: Kind, name: str, lost: Lost | None) -> None:
        if kind in KILLS:
            os.kill(os.getpid(), signal.SIGKILL)
        if kind in DEATHS:
            self.cut_off = True
            raise Died(name)
        if kind in PAUSES:
            if self.pause is not None:
                self.pause(name)
            return
        self.cut_off = True
        if kind is Kind.AWAY:
            self._away = True
        assert lost is not None
        raise lost(f"{name}: {kind}")
