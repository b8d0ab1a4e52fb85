"""The command, run as users run it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

Done = subprocess.CompletedProcess[str]


def environment(changes: Mapping[str, str] = {}) -> dict[str, str]:
    """The environment without settings but these, and a terminal wide enough that nothing is wrapped."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RECOVERY_")}
    return {**clean, "COLUMNS": "300", "PYTHONPATH": str(ROOT), **changes}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "recovery", *arguments]


def recovery(
    *arguments: str, env: Mapping[str, str] = {}, cwd: Path = ROOT, timeout: float = 120, terminal: str | None = None
) -> Done:
    """Run it to its end, in a process of its own; see `template`. With the path of a `terminal` all that it says goes
    there."""
    with tempfile.NamedTemporaryFile() as stdout, tempfile.NamedTemporaryFile() as stderr:
        order = {
            "arguments": arguments,
            "env": environment(env),
            "cwd": str(cwd),
            "stdout": terminal or stdout.name,
            "stderr": terminal or stderr.name,
        }
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asked:
            asked.settimeout(timeout)
            asked.connect(template())
            asked.send(json.dumps(order).encode())
            code = json.loads(asked.recv(100))
        said = [Path(stream.name).read_text() for stream in (stdout, stderr)]
    return subprocess.CompletedProcess(command(*arguments), code, *said)


@lru_cache
def template() -> str:
    """Where it takes orders. It ends with us."""
    path = Path(tempfile.mkdtemp()) / "template"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.template", path],
        env=environment(),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    atexit.register(_end, process, path)
    return str(path)


def _end(template: subprocess.Popen[str], path: Path) -> None:
    template.communicate()
    shutil.rmtree(path.parent)


def refused(*arguments: str, env: Mapping[str, str] = {}, cwd: Path = ROOT) -> str:
    """What it says when it refuses: one message of ours, no traceback."""
    done = recovery(*arguments, env=env, cwd=cwd)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("error: "), done.stderr
    return done.stderr
