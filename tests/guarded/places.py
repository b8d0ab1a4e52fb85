"""All that others may read of a cluster: what its processes were started with, wrote, stored, sent and served.

A process's environment is not among it: `/proc/PID/environ` is for its own user alone, and that is where settings
come from.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.errors import OperationFailure

LOOK_EVERY = 0.1
"""Seconds. A program takes longer to import what it needs."""


class ProcessList:
    """What `ps` would have shown, of all processes of the machine, again and again while the block runs."""

    def __init__(self) -> None:
        self.seen: set[bytes] = set()
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, name="process list", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ends.set()
        self._thread.join()

    def text(self) -> bytes:
        return b"\n".join(sorted(self.seen))

    def _look(self) -> None:
        while not self._ends.wait(LOOK_EVERY):
            for line in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):  # it has ended
                    self.seen.add(line.read_bytes().replace(b"\0", b" "))


def files(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All files below a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes()


def of_mongodb(client: MongoClient[dict[str, Any]]) -> Iterator[tuple[str, bytes]]:
    """All records of all databases as they are stored. The oplog among them: so whatever was written and is there no
    more, too."""
    raw: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
    for name in client.list_database_names():
        for collection in client[name].list_collection_names():
            found = client[name].get_collection(collection).with_options(raw).find()
            with suppress(OperationFailure):  # there are two of the server's own that it shows to nobody
                yield f"MongoDB {name}.{collection}", b"\n".join(one.raw for one in found)
