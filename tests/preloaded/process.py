"""What `recovery.stack.child` starts, forked from the template where that is the same; else another interpreter."""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from recovery.stack import child

ROOT = Path(__file__).parents[2]
NEVER = "TESTS_PRELOAD_NOTHING"
"""Set in a child's environment, or in ours: another interpreter is started, as users do."""
_AT_FIRST = dict(os.environ)
"""What the template is started with, whatever a test sets for itself by then."""
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)
_one_at_a_time = threading.Lock()


class Forked:
    """As `subprocess.Popen`, as far as a `Child` uses it."""

    def __init__(self, command: Sequence[str], output: int, env: Mapping[str, str], cwd: Path) -> None:
        reading, writing = os.pipe()
        order = {"command": command, "env": dict(env), "cwd": str(cwd)}
        template = _template()
        with _one_at_a_time:
            _adopt(True)
            try:
                socket.send_fds(template, [json.dumps(order).encode()], [reading, output])
                self.pid = int(template.recv(20))
                assert self.pid, "no process could be forked"
            finally:
                _adopt(False)
        os.close(reading)
        self.stdin = os.fdopen(writing, "wb")
        self.returncode: int | None = None

    def wait(self) -> int:
        """Its exit code, as `Popen` has it."""
        if self.returncode is None:
            _, status = os.waitpid(self.pid, 0)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def start(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdout: Any = None,
    **options: Any,
) -> Forked | subprocess.Popen[bytes]:
    """In the place of `Popen`."""
    program = command[len(child._GATE) :]
    if _is_preloaded(program, env or {}) and not options.get("pass_fds"):
        return Forked(program, stdout.fileno(), env or os.environ, cwd or Path.cwd())
    return subprocess.Popen(command, env=env, cwd=cwd, stdout=stdout, **options)


def _is_preloaded(program: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether it is a worker or a beat of ours, and nothing in its environment is heeded before its first line."""
    names = {name for name in {*env, *_AT_FIRST} if name.startswith(("PYTHON", "LD_", "MALLOC_"))}
    return (
        list(program[:3]) == [sys.executable, "-m", "recovery"]
        and program[3] in ("worker", "beat")
        and NEVER not in {*env, *os.environ}
        and env.get("PYTHONPATH", str(ROOT)) == str(ROOT)
        and all(env.get(name) == _AT_FIRST.get(name) for name in names - {"PYTHONPATH", "PYTHONUNBUFFERED"})
    )


class _Subprocess:
    """The module `subprocess` as `child` has it."""

    Popen = staticmethod(start)
    PIPE, STDOUT = subprocess.PIPE, subprocess.STDOUT


def install() -> None:
    """From here on, in this process."""
    patch.object(child, "subprocess", _Subprocess).start()


@lru_cache
def _template() -> socket.socket:
    """Where it takes orders. It ends with us."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = Path(tempfile.gettempdir()) / f"preloaded-{uuid.uuid4().hex}"
    folder.mkdir()
    env = {name: value for name, value in _AT_FIRST.items() if not name.startswith("RECOVERY_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.preloaded.template", str(its.fileno())],
        env={**env, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "PROMETHEUS_MULTIPROC_DIR": str(folder)},
        cwd=ROOT,
        pass_fds=[its.fileno()],
    )
    its.close()
    ours.settimeout(60)
    atexit.register(_end, process, ours, folder, os.getpid())
    return ours


def _end(process: subprocess.Popen[bytes], ours: socket.socket, folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        ours.close()
        process.wait()
        shutil.rmtree(folder)


def _adopt(orphans: bool) -> None:
    """Become, or cease to be, the parent of those of our descendants whose own has ended."""
    if _libc.prctl(_PR_SET_CHILD_SUBREAPER, int(orphans), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
