"""Process types that start by themselves; each run leaves a sign in the folder that the environment names."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from recovery import Recovery

FOLDER = "TEST_SCHEDULED"
app = Recovery()


@app.process(schedule="1s", overlap="allow", catch_up="all", catch_up_limit=1000)
def tick() -> None:
    """Each second, and none is left out."""


@app.process(schedule="1s", retry_across_count=3, retry=None)
def pull() -> str:
    return run("pull")


@app.process(schedule="1s", retry_across="3s", retry=None)
def fetch() -> str:
    return run("fetch")


def run(name: str) -> str:
    """Fail as the file `error` says, as long as it is there: always alike, or by two of each kind in turn."""
    folder = Path(os.environ[FOLDER])
    before = len(list(folder.glob(f"{name}-*")))
    (folder / f"{name}-{uuid.uuid4().hex}").touch()
    try:
        error = (folder / "error").read_text()
    except FileNotFoundError:
        return "done"
    if error == "refused" or before // 2 % 2 == 0:
        raise ConnectionRefusedError("refused")
    raise TimeoutError("no answer")
