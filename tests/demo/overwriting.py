"""The demo's application in workers that take every late result: the guard of `finish` is gone but for the id.

A defect, planted: what `recovery demo --chaos` is there to see. Only workers import this.
"""

from __future__ import annotations

from unittest.mock import patch

from recovery.demo.app import app as app
from recovery.store.lifecycle import decisions

patch.object(decisions, "may_finish", lambda *_: {}).start()
