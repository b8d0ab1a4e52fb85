"""`examples/` does what its files say, on a real worker, by the commands of its page."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from recovery import Recovery, Settings
from recovery.stack import ChildProcess
from tests.cli.command import ROOT, command, environment
from tests.waiting import wait_until

EXAMPLES = ROOT / "examples"
PAGE = EXAMPLES / "README.md"
DONE = {
    "order.py": "asked for a review of ring, book (800 g)",
    "client.py": "asked for a review of ring, book (800 g)",
    "etl.py": {
        "day": "2026-03-02",
        "loaded": {"north": 7, "east": 7},
        "failed": [
            "transform: ValueError: invalid literal for int() with base 10: 'x'",
            "extract: LookupError: west has no data",
        ],
    },
    "thumbnails.json": "1 of 1 finished in",
}
"""{file: what comes of it}."""
APPS = {
    "order.py": "order:app",
    "client.py": "order:app",
    "etl.py": "etl:app",
    "thumbnails.json": "recovery.demo.app:app",
}


def commands() -> dict[str, str]:
    """{file: the command of the page}."""
    return dict(re.findall(r"^\| `([a-z.]+)` \|.*\| `([^|`]+)` \|$", PAGE.read_text(), re.MULTILINE))


def test_the_page_and_the_tests_name_all_of_them() -> None:
    there = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - {PAGE.name}
    assert there == commands().keys() == DONE.keys() == APPS.keys()


@pytest.mark.cluster
@pytest.mark.parametrize("name", sorted(DONE))
def test_an_example(name: str, settings: Settings, tmp_path: Path) -> None:
    """In their folder, with its worker and beat; a program twice, which finds what it started."""
    env = environment(settings.environment()) | {"PYTHONDONTWRITEBYTECODE": "1"}
    children = [
        ChildProcess(part, command(part, "--app", APPS[name]), tmp_path / f"{part}.log", env=env, cwd=EXAMPLES)
        for part in ("worker", "beat")
    ]
    try:
        app = Recovery(settings)
        wait_until(app.resources.store.workers.all, 60, "a worker")
        for _ in range(2 if name == "client.py" else 1):
            told = run(commands()[name], env)
        if isinstance(DONE[name], dict):
            assert json.loads(told[-1]) == DONE[name]
        else:
            assert str(DONE[name]) in told[-1]
        if name == "client.py":
            assert app.resources.store.database["processes"].count_documents({}) == 1
            assert "with other items" in run("python client.py 4711 lamp", env, code=1)[-1]
    finally:
        for child in children:
            child.kill_group()


def run(line: str, env: dict[str, str], code: int = 0) -> list[str]:
    """What a command of the page prints."""
    program, *rest = shlex.split(line)
    start = [sys.executable, "-m", "recovery"] if program == "recovery" else [sys.executable]
    done = subprocess.run([*start, *rest], env=env, cwd=EXAMPLES, capture_output=True, text=True, timeout=90)
    assert done.returncode == code, done.stdout + done.stderr
    return (done.stdout if code == 0 else done.stderr).splitlines()
