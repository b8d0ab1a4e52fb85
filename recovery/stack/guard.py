"""The guard: kills the process groups that we started when we are gone.

One small process per Python process that has children. It is told each group before the group's program
starts, and watches us; when we end, however we end, it sends SIGKILL to every group that was not released.

Why not PR_SET_PDEATHSIG: that signal comes when the *thread* that forked ends, and it reaches only the child
itself. A worker's pool processes, its grandchildren, would go on taking tasks.

Limits: Linux 5.3 or newer (pidfd); a process that leaves its group is not found. The guard runs as a script
without site-packages, to start in milliseconds; so this module imports the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading


class Guard:
    """Our side: tells the guard process which groups to kill. A guard that was killed is started again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def watch(self, group: int) -> None:
        """Once this returns, the group ends with us."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        """The group is dead; its number may soon be somebody else's."""
        with self._lock:
            self._groups.discard(group)
            self._tell(f"-{group}\n")

    def close(self) -> None:
        """End the guard, which kills what was not released."""
        with self._lock:
            if self._process and self._process.stdin:
                self._process.stdin.close()
                self._process.wait()
            self._process = None

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                self._write(self._process, line)
                return
        self._process = self._started()
        self._write(self._process, "".join(f"+{group}\n" for group in self._groups))

    @staticmethod
    def _started() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
        # Its own session: a Ctrl-C or a kill that is meant for our group must not end the guard first.
        return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, bufsize=0)

    @staticmethod
    def _write(process: subprocess.Popen[bytes], text: str) -> None:
        assert process.stdin is not None
        process.stdin.write(text.encode())


def _watch(parent: int) -> None:
    """The guard's side: collect groups until the parent ends or closes the pipe, then kill them."""
    os.set_blocking(0, False)
    wake = select.poll()
    wake.register(0, select.POLLIN)
    # A fork of the parent may hold the pipe open after the parent's end, so the pidfd is watched too.
    with contextlib.suppress(ProcessLookupError):
        wake.register(os.pidfd_open(parent), select.POLLIN)
    groups: set[int] = set()
    rest, ended, closed = b"", False, False
    while not (ended or closed):
        # Asked before reading: what the parent wrote before it ended is then in the pipe.
        ended = os.getppid() != parent
        text, closed = _read_all()
        *lines, rest = (rest + text).split(b"\n")
        for line in lines:
            (groups.add if line.startswith(b"+") else groups.discard)(int(line[1:]))
        if not ended and not closed:
            wake.poll()
    _kill(groups)


def _read_all() -> tuple[bytes, bool]:
    """What lies in the pipe now, and whether its other end is closed."""
    chunks = b""
    while True:
        try:
            chunk = os.read(0, 65536)
        except BlockingIOError:
            return chunks, False
        if not chunk:
            return chunks, True
        chunks += chunk


def _kill(groups: set[int]) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
