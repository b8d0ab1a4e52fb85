"""The command, run as users run it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]

Done = subprocess.CompletedProcess[str]


def environment(changes: Mapping[str, str] = {}) -> dict[str, str]:
    """The environment without settings but these, and a terminal wide enough that nothing is wrapped."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RECOVERY_")}
    return {**clean, "COLUMNS": "300", "PYTHONPATH": str(ROOT), **changes}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "recovery", *arguments]


def recovery(*arguments: str, env: Mapping[str, str] = {}, cwd: Path = ROOT, timeout: float = 120) -> Done:
    """Run it to its end."""
    return subprocess.run(
        command(*arguments),
        env=environment(env),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def refused(*arguments: str, env: Mapping[str, str] = {}, cwd: Path = ROOT) -> str:
    """What it says when it refuses: one message of ours, no traceback."""
    done = recovery(*arguments, env=env, cwd=cwd)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: "), done.stderr
    return done.stderr
