"""A session of Spark Connect: a driver that runs elsewhere. No Java is needed on this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from recovery.errors import SparkUnavailable

PORT = 15002
NEEDED = ("grpc", "grpc_status", "pandas")
INSTALL = "pip install 'pyspark[connect]'"


def is_alive(session: SparkSession) -> bool:
    """Whether its server is there, and knows the session, as far as the last answer said: one that was started again
    does not."""
    return not session.is_stopped and answers(session.client._builder.endpoint, PORT)


@contextmanager
def session(url: str) -> Iterator[SparkSession]:
    """A session of its own at `sc://HOST:PORT/;options`. Raises SparkUnavailable."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise SparkUnavailable(f"RECOVERY_SPARK_MASTER=sc://... needs {' and '.join(missing)}: {INSTALL}")
    address = urlsplit(url).netloc
    if not answers(address, PORT):
        raise SparkUnavailable(
            f"the Spark Connect server at {address} does not answer: check that it runs, and that this machine "
            "reaches it"
        )
    try:
        made = SparkSession.builder.remote(url).create()
    except (PySparkException, ValueError) as error:
        raise SparkUnavailable(f"the Spark Connect server at {address} gives no session: {error}") from None
    try:
        yield made
    finally:
        with suppress(Exception):  # gone, or away: what it has there ends by itself
            made.stop()


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
