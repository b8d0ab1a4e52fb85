"""Ports on this machine: find one, or say plainly that the wanted one is in use."""

from __future__ import annotations

import random
import socket
from pathlib import Path

from recovery.errors import PortTaken

HOST = "127.0.0.1"
_LOWEST = 10_000
_TRIES = 200


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
