"""The folder of a worker's metrics: what killed workers left behind is removed by the next one."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import ROOT

LEFT = """
cd "$TMPDIR" && mkdir "recovery-metrics-$$-left" "recovery-metrics-$PPID-lives" recovery-metrics-999999999-left
exec "$0" -c 'import os, recovery.worker; print(os.environ["PROMETHEUS_MULTIPROC_DIR"])'
"""


def test_what_was_left_is_removed_also_of_our_own_number(tmp_path: Path) -> None:
    """In a container that is started again the number is the same, and the folder may be: it is the pod's."""
    env = {key: value for key, value in os.environ.items() if key != "PROMETHEUS_MULTIPROC_DIR"}
    env |= {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        ["sh", "-c", LEFT, sys.executable], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    lives = tmp_path / f"recovery-metrics-{os.getpid()}-lives"
    assert set(tmp_path.iterdir()) == {lives, Path(run.stdout.strip())}


def test_what_is_no_folder_is_not_waited_for(tmp_path: Path) -> None:
    """Opening a FIFO waits for a writer, and a link may lead anywhere."""
    fifo, link = tmp_path / "recovery-metrics-999999997-fifo", tmp_path / "recovery-metrics-999999996-link"
    elsewhere = tmp_path / "elsewhere"
    os.mkfifo(fifo)
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    link.symlink_to(elsewhere)
    env = {key: value for key, value in os.environ.items() if key != "PROMETHEUS_MULTIPROC_DIR"}
    env |= {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        ["sh", "-c", LEFT, sys.executable], env=env, capture_output=True, text=True, timeout=20, check=True
    )
    assert Path(run.stdout.strip()).is_dir() and fifo.is_fifo() and link.is_symlink()
    assert (elsewhere / "kept").exists()


def test_what_a_worker_holds_that_can_not_be_seen_is_left(tmp_path: Path) -> None:
    """One in another container, which has the folder in common."""
    held = tmp_path / "recovery-metrics-999999998-held"
    held.mkdir()
    env = {key: value for key, value in os.environ.items() if key != "PROMETHEUS_MULTIPROC_DIR"}
    env |= {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    holding = os.open(held, os.O_RDONLY)
    try:
        fcntl.flock(holding, fcntl.LOCK_EX)
        run = subprocess.run(
            ["sh", "-c", LEFT, sys.executable], env=env, capture_output=True, text=True, timeout=60, check=True
        )
    finally:
        os.close(holding)
    assert held in set(tmp_path.iterdir()) and Path(run.stdout.strip()).parent == tmp_path


def test_a_worker_holds_its_own(tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if key != "PROMETHEUS_MULTIPROC_DIR"}
    env |= {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    code = "import os, recovery.worker; print(os.environ['PROMETHEUS_MULTIPROC_DIR'], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        folder = os.open(worker.stdout.readline().strip(), os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        worker.stdin.write("\n")
        worker.stdin.close()
        worker.wait(30)
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(folder)
