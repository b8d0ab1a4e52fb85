"""What a find answers, as bytes: document after document, none of them decoded; and time zones for some of them.

Decoding a document that is like a thousand others takes as long as all else that is done with it. pymongo returns
undecoded batches as well (`find_raw_batches`), but makes an object of each document to join them: 0.6 µs each, of which
0.2 remain here. So the commands are given by hand, and the first one is sent again if the connection was broken, as
pymongo does it.
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
    """Pages of what a `find` of this collection answers, so many documents each; `find` has the command's other fields.
    By the collection's read concern, from the primary."""
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
        except GeneratorExit:  # nobody wants the rest
            if cursor:
                try_start(Thread(target=_kill, args=(database, name, cursor), name="kill cursor", daemon=True))
            raise


def _kill(database: Database[Any], name: str, cursor: int) -> None:
    """In a thread of its own: the garbage collector, which ends a generator that was dropped, may run within pymongo,
    whose locks its thread holds."""
    with suppress(PyMongoError):
        database.command({"killCursors": name, "cursors": [cursor]})


def decoded(documents: bytes, options: CodecOptions[Document]) -> list[Document]:
    """The documents of a page, or some of them, as a find by these options has them."""
    return decode_all(documents, options)


def _answer(reply: RawBSONDocument) -> tuple[bytes, int]:
    """The documents of a reply, and the cursor that has the rest; 0: there is none."""
    cursor = bytes(reply["cursor"].raw)
    if cursor[4] != _ARRAY:  # which MongoDB puts first, to fill it while it reads
        found = reply["cursor"]
        batch = found["firstBatch"] if "firstBatch" in found else found["nextBatch"]
        return b"".join(document.raw for document in batch), int(found["id"])
    start = cursor.index(0, 5) + 1
    end = start + _SIZE.unpack_from(cursor, start)[0]
    rest = decode(_SIZE.pack(len(cursor) - end + 4) + cursor[end:])
    return _joined(cursor, start + 4, end - 1), int(rest["id"])


def _joined(array: bytes, at: int, end: int) -> bytes:
    """The documents of an array's elements, without what is between them: a type, and their place as a text."""
    documents = list[bytes]()
    while at < end:
        start = array.index(0, at) + 1
        at = start + _SIZE.unpack_from(array, start)[0]
        documents.append(array[start:at])
    return b"".join(documents)


def aware(document: Document) -> Document:
    """The same document, all of its times now in UTC.

    A page of which little is looked at is read without time zones, and so are records that have many times: pymongo
    takes 0.5 µs to give a time its zone.
    """
    for key, value in document.items():
        if type(value) in _WITH_TIMES:
            document[key] = _in_utc(value)
    return document


def _in_utc(value: Any) -> Any:
    kind = type(value)
    if kind is datetime:
        # A sixth of what `replace` takes.
        return datetime.combine(value.date(), value.time(), UTC)
    if kind is dict:
        return aware(value)
    return [_in_utc(one) if type(one) in _WITH_TIMES else one for one in value]
