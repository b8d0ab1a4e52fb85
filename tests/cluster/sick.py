"""An application whose slots can be made unable to run what they claim, for a reason that is no task's.

While there is a file `sick` in the folder that SICK names, all slots are. If it holds `once`, the first pool process
that sees it is, and no other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from recovery import Recovery
from recovery.worker.slots.board import SharedBoard, ThreadBoard

SICK = "TEST_SICK"
REASON = "this machine has none"

app = Recovery()


@app.process()
def number(value: int) -> int:
    return value


def _is_sick() -> bool:
    if SICK not in os.environ:  # in the process of the tests, which imports this as well
        return False
    sign = Path(os.environ[SICK]) / "sick"
    try:
        if sign.read_text() == "once":
            sign.write_text(str(os.getpid()))
        return sign.read_text() in ("", str(os.getpid()))
    except FileNotFoundError:
        return False


for board in (SharedBoard, ThreadBoard):

    def enter(self: Any, *args: Any, _enter: Any = board.enter) -> None:
        if _is_sick():
            raise FileNotFoundError(2, REASON)
        _enter(self, *args)

    board.enter = enter  # type: ignore[assignment, method-assign]
