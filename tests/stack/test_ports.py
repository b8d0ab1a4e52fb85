"""Ports are found free, and a taken one is named."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from recovery.errors import PortTaken
from recovery.stack.server_process import HOST, free_port, is_free, require_free


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


def test_free_port_is_free_and_not_one_of_outgoing_connections() -> None:
    port = free_port()
    assert is_free(port)
    assert 10_000 <= port < 32_768
    require_free(port, "valkey")


def test_taken_port_is_named(taken: int) -> None:
    assert not is_free(taken)
    with pytest.raises(PortTaken, match=rf"valkey can't listen on 127\.0\.0\.1:{taken}: the port is in use"):
        require_free(taken, "valkey")
