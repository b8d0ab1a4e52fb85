"""What goes over the wire is what redis-py would send, in one piece."""

from __future__ import annotations

from typing import Any

import pytest
from redis._parsers import Encoder
from redis.connection import PythonRespSerializer

from recovery.queue.redis_connection import OnePiece, connect
from recovery.settings import Settings

COMMANDS: list[tuple[Any, ...]] = [
    ("PING",),
    ("CONFIG GET", "max*"),
    (b"CLIENT SETINFO", "LIB-NAME", b"ours"),
    ("LPUSH", "queue", *["a message " * 50] * 1000),
    ("SET", "key", "ключ", 5, 0.5, b"\x00\xff", memoryview(b"view"), ""),
    ("SET", "key", "x" * 100_000),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: str(words[0]))
def test_a_command_is_one_piece_of_the_same_bytes(words: tuple[Any, ...]) -> None:
    theirs: Any = PythonRespSerializer(6000, Encoder("utf-8", "strict", False).encode)  # type: ignore[no-untyped-call]
    (piece,) = OnePiece().pack(*words)
    assert piece == b"".join(theirs.pack(*words))


@pytest.mark.parametrize("wrong", [None, True, ["a", "list"]])
def test_what_can_not_be_sent_is_refused_as_before(wrong: Any) -> None:
    with pytest.raises(Exception, match="Invalid input of type"):
        OnePiece().pack("SET", "key", wrong)


def test_our_clients_pack_so(emptied: Settings) -> None:
    pool = connect(emptied.broker_url).connection_pool
    connection = pool.get_connection()
    try:
        assert len(connection.pack_command("LPUSH", "queue", *["a message " * 50] * 1000)) == 1
    finally:
        pool.release(connection)
