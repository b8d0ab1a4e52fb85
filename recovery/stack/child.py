"""A child process that ends when we end, with everything that it started.

Each child leads its own session, so Ctrl-C in our terminal reaches only us and we stop the children in order.
Its output goes to a log file. It can't be left behind: a small shell holds its start back until the guard
(see `guard`) knows the group, so there is no moment at which killing us leaves it running.

While a child is ours, its number stays ours: an ended child is reaped only after its group was killed, so a
signal to the group can't hit a stranger that got the same number. Who of a group lives, and whether it stands still, is
read from /proc.

Limits: Linux only; a process that leaves the child's group is not found.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from recovery.errors import ServerError
from recovery.stack import child as groups
from recovery.stack.guard import Guard
from recovery.threads import poll

# Waits for a line, which comes when the guard knows us; if we die before, it reads the end and goes.
_GATE = ["/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "sh"]
# SIGKILL takes effect at once, but for a process in a disk wait.
_KILLED_TIMEOUT = 10.0

_guard = Guard()
_live: dict[int, ChildProcess] = {}
STOPPED = "T"
"""The state of a process that SIGSTOP holds."""
LOOK_EVERY = 0.005
"""Seconds. A signal takes effect within a few milliseconds."""


class ChildProcess:
    """A program that runs from construction until it ends by itself, or `stop` or `kill_group` is called."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        log: Path,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        keep_open: Iterable[int] = (),
    ) -> None:
        self.name, self.log = name, log
        self.command = [str(part) for part in command]
        self._lock = threading.RLock()
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            self._log_start = output.tell()
            self._process = subprocess.Popen(
                [*_GATE, *self.command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                pass_fds=tuple(keep_open),
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._pidfd = os.pidfd_open(self.pid)
        _live[self.pid] = self
        _guard.watch(self.pid)
        self._open_gate()

    @property
    def running(self) -> bool:
        """Whether the program itself runs; processes that it started are in `members`."""
        return not self.wait(0)

    @property
    def exit_code(self) -> int | None:
        """As in `subprocess`: None while it runs, minus the signal when a signal ended it."""
        with self._lock:
            if self._process.returncode is not None or self.running:
                return self._process.returncode
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    @property
    def frozen(self) -> bool:
        """Whether the program stands still since `freeze`."""
        return not self._reaped and groups.states(self.pid).get(self.pid) == groups.STOPPED

    def members(self) -> list[int]:
        """The live processes of the group: the program and what it started."""
        return [] if self._reaped else list(groups.states(self.pid))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the program has ended; False when `timeout` seconds went by."""
        with self._lock:
            if self._reaped:
                return True
            ended = select.poll()
            ended.register(self._pidfd, select.POLLIN)
        return bool(ended.poll(None if timeout is None else timeout * 1000))

    def terminate(self) -> None:
        """SIGTERM to the program alone: a worker's pool processes are the worker's to end."""
        self._signal(signal.SIGTERM)

    def freeze(self) -> None:
        """SIGSTOP to the program and all that it started, as a paused machine would. Returns when all stand still."""
        self._signal_group(signal.SIGSTOP)
        groups.await_frozen(self.pid, _KILLED_TIMEOUT)

    def thaw(self) -> None:
        """SIGCONT to the program and all that it started. Does nothing where nothing is frozen."""
        self._signal_group(signal.SIGCONT)

    def stop(self, grace: float = 10.0) -> None:
        """SIGTERM, wait up to `grace` seconds, then SIGKILL to what is left of the group."""
        self.terminate()
        self.thaw()  # what is frozen does not end by SIGTERM
        self.wait(grace)
        self.kill_group()

    def kill(self) -> None:
        """SIGKILL to the program alone, as the kernel does when memory runs out. What it started goes on."""
        self._signal(signal.SIGKILL)
        self._expect_end(self.wait(_KILLED_TIMEOUT))

    def kill_group(self) -> None:
        """SIGKILL to the program and all that it started; returns when none of them lives."""
        with self._lock:
            if self._reaped:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._expect_end(groups.await_dead(self.pid, _KILLED_TIMEOUT))
            self._forget()

    def last_lines(self, count: int = 20) -> list[str]:
        """The end of what this child wrote, for an error message."""
        with self.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - 65536))
            return log.read().decode(errors="replace").splitlines()[-count:]

    def _open_gate(self) -> None:
        assert self._process.stdin is not None
        # A gate that is gone already is seen by the first wait.
        with contextlib.suppress(BrokenPipeError), self._process.stdin as gate:
            gate.write(b"go\n")

    @property
    def _reaped(self) -> bool:
        return self._process.returncode is not None

    def _signal(self, number: signal.Signals) -> None:
        with self._lock:
            if not self._reaped:
                os.kill(self.pid, number)

    def _signal_group(self, number: signal.Signals) -> None:
        with self._lock:
            if not self._reaped:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.pid, number)

    def _forget(self) -> None:
        _guard.release(self.pid)
        self._process.wait()
        os.close(self._pidfd)
        _live.pop(self.pid, None)

    def _expect_end(self, ended: bool) -> None:
        if not ended:
            raise ServerError(f"{self.name} (pid {self.pid}) is still there {_KILLED_TIMEOUT:g} s after SIGKILL")

    def __repr__(self) -> str:
        return f"<ChildProcess {self.name} pid={self.pid} exit_code={self.exit_code}>"


def stop_all(children: Iterable[ChildProcess], grace: float = 10.0) -> None:
    """Stop them side by side: each has `grace` seconds from now."""
    children = list(children)
    deadline = time.monotonic() + grace
    for child in children:
        child.terminate()
        child.thaw()
    for child in children:
        child.wait(max(0.0, deadline - time.monotonic()))
        child.kill_group()


def _stop_live(owner: int = os.getpid()) -> None:
    """At exit: stop what was not stopped, the last started first. A fork of us leaves them alone."""
    if os.getpid() != owner:
        return
    for child in reversed(list(_live.values())):
        child.stop()
    _guard.close()


atexit.register(_stop_live)


def states(group: int) -> dict[int, str]:
    """{pid: state} of the processes of a group that are not zombies."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in brackets may hold anything, so the fields are counted from the last bracket.
            state, _parent, of_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(of_group) == group and state not in "ZX":
                found[int(stat.parent.name)] = state
    return found


def await_dead(group: int, timeout: float) -> bool:
    """Wait until none of a group lives; False when `timeout` seconds went by."""
    return poll(lambda: not states(group), timeout, LOOK_EVERY)


def await_frozen(group: int, timeout: float) -> bool:
    """Wait until all of a group stand still; False when `timeout` seconds went by."""
    return poll(lambda: all(state == STOPPED for state in states(group).values()), timeout, LOOK_EVERY)
