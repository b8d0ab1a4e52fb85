"""Child processes that end when we end, together with everything that they started.

Each child leads its own session, so a Ctrl-C in our terminal reaches only us, and we stop the children in order. A
child's output goes to a log file. A small shell delays the start of the child's program until the guard (see `guard`)
knows its group, so there is no moment at which killing us leaves it running.

An ended child is reaped only after its group was killed. Until then no other program can get its number, so a signal to
the group can't hit a stranger. Which processes of a group live or are stopped is read from /proc.

Limits: Linux only. A process that leaves the child's group is not found.
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

# Waits for a line, which is written when the guard knows the group. If we die before, it reads the end of the pipe and
# exits.
_GATE = ["/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "sh"]
# Seconds to wait after SIGKILL. The signal takes effect at once, unless the process is in a disk wait.
_KILLED_TIMEOUT = 10.0

_guard = Guard()
_live: dict[int, ChildProcess] = {}
STOPPED = "T"
"""State of a process that SIGSTOP has stopped."""
LOOK_EVERY = 0.005
"""Seconds between two looks at a group. A signal takes effect within a few milliseconds."""


class ChildProcess:
    """A program that runs from construction until it ends by itself, or until `stop` or `kill_group` is called."""

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
        """Whether the program itself runs. Processes that it started are in `members`."""
        return not self.wait(0)

    @property
    def exit_code(self) -> int | None:
        """Exit code as in `subprocess`: None while the program runs, and minus the signal's number if a signal ended
        it."""
        with self._lock:
            if self._process.returncode is not None or self.running:
                return self._process.returncode
            ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    @property
    def frozen(self) -> bool:
        """Whether the program is stopped by `freeze`."""
        return not self._reaped and groups.states(self.pid).get(self.pid) == groups.STOPPED

    def members(self) -> list[int]:
        """Return the live processes of the group: the program and the processes that it started."""
        return [] if self._reaped else list(groups.states(self.pid))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the program has ended. Return False if it has not after `timeout` seconds."""
        with self._lock:
            if self._reaped:
                return True
            ended = select.poll()
            ended.register(self._pidfd, select.POLLIN)
        return bool(ended.poll(None if timeout is None else timeout * 1000))

    def terminate(self) -> None:
        """Send SIGTERM to the program alone. A worker ends its pool processes itself."""
        self._signal(signal.SIGTERM)

    def freeze(self) -> None:
        """Send SIGSTOP to the whole group, as if the machine paused. Returns when all its processes are stopped."""
        self._signal_group(signal.SIGSTOP)
        groups.await_frozen(self.pid, _KILLED_TIMEOUT)

    def thaw(self) -> None:
        """Send SIGCONT to the whole group. Does nothing if nothing is frozen."""
        self._signal_group(signal.SIGCONT)

    def stop(self, grace: float = 10.0) -> None:
        """Send SIGTERM, wait up to `grace` seconds, then send SIGKILL to the rest of the group."""
        self.terminate()
        self.thaw()  # because a frozen program does not end by SIGTERM
        self.wait(grace)
        self.kill_group()

    def kill(self) -> None:
        """Send SIGKILL to the program alone, as the kernel does when memory runs out. Processes that it started
        continue."""
        self._signal(signal.SIGKILL)
        self._expect_end(self.wait(_KILLED_TIMEOUT))

    def kill_group(self) -> None:
        """Send SIGKILL to the whole group. Returns when all its processes are dead."""
        with self._lock:
            if self._reaped:
                return
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self._expect_end(groups.await_dead(self.pid, _KILLED_TIMEOUT))
            self._forget()

    def last_lines(self, count: int = 20) -> list[str]:
        """Return the last lines of this child's output, for an error message."""
        with self.log.open("rb") as log:
            size = log.seek(0, os.SEEK_END)
            log.seek(max(self._log_start, size - 65536))
            return log.read().decode(errors="replace").splitlines()[-count:]

    def _open_gate(self) -> None:
        assert self._process.stdin is not None
        # If the shell is already dead, the first wait notices.
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
            raise ServerError(f"{self.name} (pid {self.pid}) still runs {_KILLED_TIMEOUT:g} s after SIGKILL")

    def __repr__(self) -> str:
        return f"<ChildProcess {self.name} pid={self.pid} exit_code={self.exit_code}>"


def stop_all(children: Iterable[ChildProcess], grace: float = 10.0) -> None:
    """Stop these children in parallel. Each has `grace` seconds from now."""
    children = list(children)
    deadline = time.monotonic() + grace
    for child in children:
        child.terminate()
        child.thaw()
    for child in children:
        child.wait(max(0.0, deadline - time.monotonic()))
        child.kill_group()


def _stop_live(owner: int = os.getpid()) -> None:
    """Stop all live children at exit, in reverse order of their start. A fork of this process does not stop them."""
    if os.getpid() != owner:
        return
    for child in reversed(list(_live.values())):
        child.stop()
    _guard.close()


atexit.register(_stop_live)


def states(group: int) -> dict[int, str]:
    """Return {pid: state} of a group's processes that are not zombies."""
    state_by_pid = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in brackets may contain any character, so fields are counted from the last bracket.
            state, _parent, process_group = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(process_group) == group and state not in "ZX":
                state_by_pid[int(stat.parent.name)] = state
    return state_by_pid


def await_dead(group: int, timeout: float) -> bool:
    """Wait until no process of a group lives. Return False if one does after `timeout` seconds."""
    return poll(lambda: not states(group), timeout, LOOK_EVERY)


def await_frozen(group: int, timeout: float) -> bool:
    """Wait until all processes of a group are stopped. Return False if one is not after `timeout` seconds."""
    return poll(lambda: all(state == STOPPED for state in states(group).values()), timeout, LOOK_EVERY)
