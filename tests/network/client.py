"""Runs on the client host: starts a process every so often until a file says that it is enough, asks for each result,
and asks again for results that it was given before. Ends once it has all of them.

    python -m tests.network.client KEY_PREFIX PERIOD_SECONDS PARTS LONGEST_PART_SECONDS
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

from recovery.errors import ProcessBroken, RecoveryError
from tests.network.app import FOLDER, app, fan, note, value_of

AGAIN = 0.5
"""Seconds from a call that failed to the next try."""
ASK_AGAIN = 2.0
"""Seconds between two questions for a result that is known."""


class Client:
    """All that one client program does, and notes in the file `client-PREFIX`."""

    def __init__(self, prefix: str, period: float, parts: int, longest: float) -> None:
        self._prefix, self._period, self._parts, self._longest = prefix, period, parts, longest
        self._enough, self._pause = (Path(os.environ[FOLDER], f"{word}-{prefix}") for word in ("enough", "pause"))
        self._told: dict[str, Any] = {}

    def run(self) -> None:
        """Start until it is enough; return once all have ended."""
        threads: list[threading.Thread] = []
        threading.Thread(target=self._ask_again, daemon=True).start()
        while not self._enough.exists():
            if self._pause.exists():
                time.sleep(AGAIN / 5)
                continue
            thread = threading.Thread(target=self._one, args=(len(threads),))
            thread.start()
            threads.append(thread)
            time.sleep(self._period)
        for thread in threads:
            thread.join()

    def _note(self, event: str, **fields: Any) -> None:
        note(f"client-{self._prefix}", event=event, **fields)

    def _one(self, number: int) -> None:
        key, drawn = f"{self._prefix}-{number}", random.Random(number)
        seconds = [round(drawn.uniform(self._longest / 5, self._longest), 2) for _ in range(self._parts)]
        self._note("asked", key=key)
        # With an id of its own it may be started again by who does not know whether it was.
        process = self._until_answered(lambda: app.start(fan, key, seconds, custom_id=key), key)
        self._note("started", key=key, process=process)
        try:
            value = self._until_answered(lambda: app.result(process, timeout=60), key)
        except ProcessBroken as error:
            self._note("broken", key=key, process=process, why=str(error))
            return
        right = value["sum"] == sum(value_of(key, place) for place in range(self._parts))
        self._note("told", key=key, process=process, value=value, right=right)
        self._told[process] = value

    def _until_answered(self, call: Any, key: str) -> Any:
        while True:
            try:
                return call()
            except ProcessBroken:
                raise
            except (RecoveryError, TimeoutError) as error:
                self._note("failed", key=key, why=f"{type(error).__name__}: {error}"[:300])
                time.sleep(AGAIN)

    def _ask_again(self) -> None:
        while True:
            time.sleep(ASK_AGAIN)
            if not self._told:
                continue
            process = random.choice(list(self._told))
            try:
                value = app.result(process, timeout=5)
            except (RecoveryError, TimeoutError) as error:
                self._note("failed", process=process, why=f"{type(error).__name__}: {error}"[:300])
                continue
            if value != self._told[process]:
                self._note("differs", process=process, first=self._told[process], now=value)


if __name__ == "__main__":
    name, every, count, most = sys.argv[1:]
    Client(name, float(every), int(count), float(most)).run()
