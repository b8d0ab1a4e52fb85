"""Runs on a worker's host beside the worker, and notes each moment in which MongoDB acknowledged a write by a majority.

By it the checks know whether a worker that was taken for lost could have written its heartbeats. It is not our code
that says so: a client of pymongo, and a new one after each failure.
"""

from __future__ import annotations

import os
import sys
import time

from pymongo import MongoClient, WriteConcern
from pymongo.errors import PyMongoError

from tests.network.app import HOST, note

EVERY = 0.5
"""Seconds between two writes."""
LIMIT_MS = 1000


def witness(uri: str) -> None:
    """Write for ever."""
    while True:
        with MongoClient[dict[str, object]](
            uri, serverSelectionTimeoutMS=LIMIT_MS, socketTimeoutMS=LIMIT_MS, connectTimeoutMS=LIMIT_MS
        ) as client:
            reached = client["witness"].get_collection("reached", write_concern=WriteConcern("majority"))
            try:
                while True:
                    reached.update_one({"_id": os.environ[HOST]}, {"$inc": {"times": 1}}, upsert=True)
                    note(f"witness-{os.environ[HOST]}", event="reached")
                    time.sleep(EVERY)
            except PyMongoError:
                time.sleep(EVERY / 5)


if __name__ == "__main__":
    witness(sys.argv[1])
