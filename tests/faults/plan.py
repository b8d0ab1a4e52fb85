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
    PAUSE = "pauses before"
    PAUSE_AFTER = "pauses after"
    KILL = "SIGKILL before"
    KILL_AFTER = "SIGKILL after"


AFTERWARDS = (Kind.AFTER, Kind.DIES_AFTER, Kind.PAUSE_AFTER, Kind.KILL_AFTER)
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
        self._away = False
        self._counts: Counter[str] = Counter()

    @classmethod
    def seeded(cls, seed: int, kinds: Sequence[Kind], *, most: int = 2, places: int = 20) -> Plan:
        """Up to `most` faults of these kinds, the same for the same seed."""
        chance = random.Random(seed)
        return cls(*(Fault(chance.choice(kinds), chance.randrange(places)) for _ in range(chance.randint(1, most))))

    def add(self, kind: Kind, step: str) -> None:
        """Let this happen to the next step of this name."""
        self.faults = (*self.faults, Fault(kind, self._counts[step], step))

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
            if lost is not None or fault.kind not in LOST
        ]
        self._counts.update(("", name))
        for kind in here:
            self.told.append(f"{name}: {kind}")
            if kind not in AFTERWARDS:
                self._happen(kind, name, step, lost, args, kw)
        result = step(*args, **kw)
        for kind in here:
            if kind in AFTERWARDS:
                self._happen(kind, name, step, lost, args, kw)
        return result

    def _happen(self, kind: Kind, name: str, step: Callable[..., Any], lost: Lost | None, args: Any, kw: Any) -> None:
        if kind in (Kind.KILL, Kind.KILL_AFTER):
            os.kill(os.getpid(), signal.SIGKILL)
        if kind in (Kind.DIES, Kind.DIES_AFTER):
            raise Died(name)
        if kind in (Kind.PAUSE, Kind.PAUSE_AFTER):
            if self.pause is not None:
                self.pause(name)
            return
        if kind is Kind.HALF:
            _by_half(step, args, kw)
        if kind is Kind.AWAY:
            self._away = True
        assert lost is not None
        raise lost(f"{name}: {kind}")


def _by_half(step: Callable[..., Any], args: Sequence[Any], kw: dict[str, Any]) -> None:
    """The first half of a batch; of a step that takes no batch, all of it."""
    of = [place for place, value in enumerate(args) if isinstance(value, (list, tuple)) and len(value) > 1]
    if of:
        batch = args[of[0]]
        args = [*args[: of[0]], batch[: len(batch) // 2], *args[of[0] + 1 :]]
    step(*args, **kw)
