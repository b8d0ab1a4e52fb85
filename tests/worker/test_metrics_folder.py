"""The folder of a worker's metrics: what killed workers left behind is removed by the next one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
