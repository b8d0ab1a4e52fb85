"""The demo's application in workers that take every late result: the guard of `finish` is gone but for the id.

A defect, planted: what `recovery demo --chaos` is there to see. Only workers import this.
"""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from recovery.demo.app import app as app
from recovery.store.lifecycle import decision_updates, decisions


def _unguarded(decision: Any, *others: Any) -> Any:
    guard, stages = decision_updates.finished(decision, *others)
    return {"_id": guard["_id"]}, stages


patch.object(decisions, "finished", _unguarded).start()
