"""The program that is forked: takes orders over the socket that it is given, until that ends.

An order is JSON, with two descriptors, of a new process's standard input and of what it writes to; the answer is its
pid. It has one thread, so what is forked may have others.
"""

from __future__ import annotations

import gc
import io
import json
import os
import pkgutil
import runpy
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

import recovery.worker
from recovery import metrics_folder as folder
from recovery.metrics import WORKERS_LOST
from recovery.settings import current

MOST = 1_000_000
"""Bytes of an order."""
CELERY = (
    "celery.app.amqp",
    "celery.app.control",
    "celery.app.events",
    "celery.app.log",
    "celery.apps.beat",
    "celery.apps.worker",
    "celery.bin.celery",
    "celery.concurrency.prefork",
    "celery.concurrency.thread",
    "celery.contrib.testing",
    "celery.events.state",
    "celery.loaders.app",
    "celery.loaders.default",
    "celery.worker.autoscale",
    "celery.worker.components",
    "celery.worker.consumer",
    "celery.worker.pidbox",
    "celery.worker.request",
    "celery.worker.strategy",
    "kombu.transport.redis",
)
OURS = ("cli.main", "cli.worker_commands", "engine", "queue", "scan", "operations", "drill.canary_actor")
NOT_BEFORE = ("recovery.worker.app",)
"""Which is made of the settings."""


class Replaced(BaseException):
    """In the place of `exec`."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        self.arguments, self.env = arguments, env


def serve(orders: socket.socket) -> None:
    """Fork one process after the other. Returns in what is forked, too, once that has run to its end."""
    _import_all()
    gc.collect()
    gc.freeze()  # else each collection in what is forked copies all that is here
    while True:
        message, streams, _, _ = socket.recv_fds(orders, MOST, 2)
        if not message:
            return
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            # Ends at once, so that the other is given to whoever asked.
            if os.fork():
                os._exit(0)
            os.setsid()
            os.write(writing, str(os.getpid()).encode())
            for descriptor in (orders.detach(), reading, writing):
                os.close(descriptor)
            become(json.loads(message), *streams)
        for descriptor in (*streams, writing):
            os.close(descriptor)
        pid = os.read(reading, 20)  # none, if it could not be forked
        os.close(reading)
        os.waitpid(between, 0)
        orders.send(pid or b"0")


def _import_all() -> None:
    for name in CELERY:
        import_module(name)
    for name in OURS:
        import_module(f"recovery.{name}")
    for found in pkgutil.walk_packages(recovery.worker.__path__, "recovery.worker."):
        if found.name not in NOT_BEFORE:
            import_module(found.name)


def become(order: Mapping[str, Any], stdin: int, output: int) -> NoReturn:
    """Be the program that is ordered, once a line has come. Raises SystemExit at its end."""
    if not _told_to_go(stdin):
        os._exit(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, stream in enumerate((nothing, output, output)):
        os.dup2(stream, descriptor)
    for descriptor in (nothing, stdin, output):
        os.close(descriptor)
    # Unbuffered, as the environment asks for.
    sys.stdout = io.TextIOWrapper(io.FileIO(1, "w", closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), errors="backslashreplace", write_through=True)
    _live_in(order["env"])
    os.chdir(order["cwd"])
    sys.path[0] = order["cwd"]
    os.execve = _replace  # type: ignore[assignment]
    _, _, module, *sys.argv[1:] = order["command"]
    there = set(sys.modules)
    while True:
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except Replaced as by:
            _live_in(by.env)
            for name in set(sys.modules) - there:
                del sys.modules[name]
            current.cache_clear()
            _, _, module, *sys.argv[1:] = by.arguments
        else:
            sys.exit(0)


def _told_to_go(stdin: int) -> bool:
    while said := os.read(stdin, 100):
        if said.endswith(b"\n"):
            return True
    return False


def _live_in(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # which was asked of another environment
    folder.keep_metrics()
    WORKERS_LOST.inc(0)  # who counts first in another process has all counters begin there, at 0


def _replace(_: str, arguments: Sequence[str], env: Mapping[str, str]) -> NoReturn:
    raise Replaced(arguments, env)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
