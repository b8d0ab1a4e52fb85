"""Commands to Redis in one piece each.

redis-py writes a command of a thousand messages in a hundred pieces, and each write gives the interpreter to whichever
thread wants it: a push takes three times as long as it needs while others compute.
"""

from __future__ import annotations

from typing import Any

from redis._parsers import Encoder

_encoder: Any = Encoder("utf-8", "strict", False)  # type: ignore[no-untyped-call]


class OnePiece:
    """Stands in for redis-py's packer of commands (`command_packer`)."""

    def pack(self, *words: Any) -> list[bytes]:
        """A command as it goes over the wire. Its name may be of several words, which the server wants one by one."""
        name, *rest = words
        names = (name.encode() if isinstance(name, str) else name).split()
        parts = [*names, *(one.encode() if type(one) is str else _encoder.encode(one) for one in rest)]
        return [b"".join([b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)])]
