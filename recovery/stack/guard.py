"""The guard: a process that kills our process groups when we are gone.

Each Python process that has children starts one small guard. The guard is told each group before the group's program
starts, and watches us. When we end, in whatever way, it sends SIGKILL to every group that was not released.

PR_SET_PDEATHSIG would not do: that signal comes when the *thread* that forked ends, and it reaches only the child
itself. A worker's pool processes, its grandchildren, would keep taking tasks.

Limits: Linux 5.3 or newer (pidfd). A process that leaves its group is not found. The guard runs as a script without
site-packages, to start in milliseconds, so this module imports only the standard library.
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
    """Our side of the guard: tells the guard process which groups to kill. A guard that was killed is restarted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._groups: set[int] = set()

    def watch(self, group: int) -> None:
        """Register a group. When this has returned, the group will be killed if we end."""
        with self._lock:
            self._groups.add(group)
            self._send(f"+{group}\n")

    def release(self, group: int) -> None:
        """Unregister a dead group. Another program may soon get its number."""
        with self._lock:
            self._groups.discard(group)
            self._send(f"-{group}\n")

    def close(self) -> None:
        """End the guard process. It kills all groups that were not released."""
        with self._lock:
            if self._process and self._process.stdin:
                self._process.stdin.close()
                self._process.wait()
            self._process = None

    def _send(self, line: str) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(BrokenPipeError):
                self._write(self._process, line)
                return
        self._process = self._start()
        self._write(self._process, "".join(f"+{group}\n" for group in self._groups))

    @staticmethod
    def _start() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
        # The guard has its own session. Otherwise a Ctrl-C or a kill for our group could end it first.
        return subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, bufsize=0)

    @staticmethod
    def _write(process: subprocess.Popen[bytes], text: str) -> None:
        assert process.stdin is not None
        process.stdin.write(text.encode())


def _watch(parent: int) -> None:
    """Run the guard process: collect groups until the parent ends or closes the pipe, then kill them."""
    os.set_blocking(0, False)
    wake = select.poll()
    wake.register(0, select.POLLIN)
    # A fork of the parent may keep the pipe open after the parent has ended, so the pidfd is watched too.
    with contextlib.suppress(ProcessLookupError):
        wake.register(os.pidfd_open(parent), select.POLLIN)
    groups: set[int] = set()
    incomplete_line, has_ended, is_closed = b"", False, False
    while not (has_ended or is_closed):
        # Checked before the read, so that everything the parent wrote before it ended is read.
        has_ended = os.getppid() != parent
        text, is_closed = _read_all()
        *lines, incomplete_line = (incomplete_line + text).split(b"\n")
        for line in lines:
            (groups.add if line.startswith(b"+") else groups.discard)(int(line[1:]))
        if not has_ended and not is_closed:
            wake.poll()
    _kill(groups)


def _read_all() -> tuple[bytes, bool]:
    """Return what the pipe contains now, and whether its other end is closed."""
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
