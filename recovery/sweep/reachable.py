"""Whether anybody listens at an address, asked before Spark is, which tries for a minute and ends in a stack trace."""

from __future__ import annotations

import socket

TIMEOUT = 5.0
"""Seconds."""


def answers(address: str, port: int = 7077) -> bool:
    """Whether something listens at `host:port`; at `port` where none is given."""
    host, colon, given = address.rpartition(":")
    if not colon or not given.isdecimal():
        host, given = address, str(port)
    try:
        with socket.create_connection((host.strip("[]"), int(given)), TIMEOUT):
            return True
    except (OSError, OverflowError):
        return False
