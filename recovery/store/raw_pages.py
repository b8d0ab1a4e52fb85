"""Reads what a find returns as pages of undecoded bytes, and adds time zones to decoded documents.

Decoding thousands of documents that are all alike takes as long as all other work on them. pymongo can return undecoded
batches too (`find_raw_batches`), but creates an object for each document. So this module sends the commands `find` and
`getMore` itself. Like pymongo, it sends the first command again if the connection was broken.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from threading import Thread
from typing import Any

from bson import decode, decode_all
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import AutoReconnect, PyMongoError

from recovery.store.client import Document
from recovery.threads import try_start

RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
_ARRAY = 4
_SIZE = struct.Struct("<i")

_WITH_TIMES = frozenset({datetime, dict, list})


def raw_pages(collection: Collection[Any], find: Document, size: int) -> Iterator[bytes]:
    """Yield the documents that a `find` returns, as undecoded pages.

    Reads from the primary with the read concern of the collection. If the caller stops early, the cursor is killed in
    the background.

    Args:
        collection: The collection.
        find: Fields of the command `find`, such as `filter`, `sort` and `hint`.
        size: Maximum number of documents in a page.
    """
    database, name = collection.database, collection.name
    first = {"find": name, **find, "batchSize": size, "readConcern": collection.read_concern.document}
    with database.client.start_session(causal_consistency=False) as session:
        try:
            reply = database.command(first, session=session, codec_options=RAW)
        except AutoReconnect:
            reply = database.command(first, session=session, codec_options=RAW)
        page, cursor = _answer(reply)
        try:
            yield page
            while cursor:
                more = {"getMore": cursor, "collection": name, "batchSize": size}
                page, cursor = _answer(database.command(more, session=session, codec_options=RAW))
                yield page
        except GeneratorExit:  # the caller stopped before the last page
            if cursor:
                try_start(Thread(target=_kill, args=(database, name, cursor), name="kill cursor", daemon=True))
            raise


def _kill(database: Database[Any], name: str, cursor: int) -> None:
    """Kill a cursor. Must run in a thread of its own.

    The garbage collector may close a generator while its thread is inside pymongo and holds pymongo's locks.
    """
    with suppress(PyMongoError):
        database.command({"killCursors": name, "cursors": [cursor]})


def decoded(documents: bytes, options: CodecOptions[Document]) -> list[Document]:
    """Return the documents of a page, or of a part of it, decoded with these options."""
    return decode_all(documents, options)


def _answer(reply: RawBSONDocument) -> tuple[bytes, int]:
    """Return the documents of a reply as bytes, and the id of the cursor for the next page (0 if there is none)."""
    cursor = bytes(reply["cursor"].raw)
    if cursor[4] != _ARRAY:  # usually the array is the first field, because MongoDB fills it while it reads
        cursor_document = reply["cursor"]
        batch = cursor_document["firstBatch"] if "firstBatch" in cursor_document else cursor_document["nextBatch"]
        return b"".join(document.raw for document in batch), int(cursor_document["id"])
    start = cursor.index(0, 5) + 1
    end = start + _SIZE.unpack_from(cursor, start)[0]
    rest = decode(_SIZE.pack(len(cursor) - end + 4) + cursor[end:])
    return _joined(cursor, start + 4, end - 1), int(rest["id"])


def _joined(array: bytes, at: int, end: int) -> bytes:
    """Return the documents of a BSON array, without the type and the key that precede each of them."""
    documents = list[bytes]()
    while at < end:
        start = array.index(0, at) + 1
        at = start + _SIZE.unpack_from(array, start)[0]
        documents.append(array[start:at])
    return b"".join(documents)


def aware(document: Document) -> Document:
    """Set the time zone UTC on all times of a document, in place. Return the document.

    For documents that were decoded without time zones, because pymongo is slow at adding them and few documents of a
    page are looked at.
    """
    for key, value in document.items():
        if type(value) in _WITH_TIMES:
            document[key] = _in_utc(value)
    return document


def _in_utc(value: Any) -> Any:
    value_type = type(value)
    if value_type is datetime:
        # Much faster than `value.replace(tzinfo=UTC)`.
        return datetime.combine(value.date(), value.time(), UTC)
    if value_type is dict:
        return aware(value)
    return [_in_utc(element) if type(element) in _WITH_TIMES else element for element in value]
