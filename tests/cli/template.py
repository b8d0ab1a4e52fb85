"""A program that has imported what the command takes, and is forked for each command that a test runs.

What is forked is a process of its own, with its own environment, folder and streams, that runs `python -m recovery` to
its end; only the imports, which take longer than most commands, are not done again, nor is all that was imported taken
down at the end. Orders come over a socket as JSON,
as many at once as there are, and are answered with the exit code. It has one thread, so what is forked may have others.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import runpy
import select
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import typer.main

from tests.built_once import build_commands_once
from tests.preloaded import process

PATIENCE = "COMPLETION_IN_TESTS"
"""Seconds that a completion may take, on a machine on which more is going on than a person's shell."""
MOST = 1_000_000
"""Bytes of an order."""
IMPORTED = ("cli.main", "engine", "health", "operations", "scan", "schedule", "search", "stack", "wfformat", "worker")


def serve(path: str) -> None:
    """Take orders at this socket until the standard input ends. Returns in what is forked, too."""
    for name in IMPORTED:
        import_module(f"recovery.{name}")
    for found in pkgutil.iter_modules(import_module("recovery.cli").__path__):
        import_module(f"recovery.cli.{found.name}")
    import_module("typer.rich_utils")
    build_commands_once()
    dict(typer.main.get_group(import_module("recovery.cli.main").app).commands)  # each is built when it is asked for
    gc.collect()
    gc.freeze()  # else each collection in what is forked copies all that is here
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        while sys.stdin not in select.select([sys.stdin, server], [], [])[0]:
            asking, _ = server.accept()
            with asking:
                if os.fork() == 0:
                    see_to(asking)
                    return
            while _ended():
                pass


def _ended() -> bool:
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def see_to(asking: socket.socket) -> None:
    """Run one command, and answer. Returns in the command's process, once it is over."""
    order = json.loads(asking.recv(MOST))
    command = os.fork()
    if command == 0:
        asking.close()
        become(order)
        return
    _, status = os.waitpid(command, 0)
    asking.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def become(order: Mapping[str, Any]) -> None:
    """Be the command, as if started with this environment."""
    streams = (os.devnull, os.O_RDONLY), (order["stdout"], os.O_WRONLY), (order["stderr"], os.O_WRONLY)
    for descriptor, (path, flags) in enumerate(streams):
        opened = os.open(path, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    # Anew: those that are there know what they wrote to before.
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    os.environ.clear()
    os.environ.update(order["env"])
    tempfile.tempdir = None  # which was asked of another environment
    os.chdir(order["cwd"])
    sys.path.insert(0, order["cwd"])
    sys.argv[1:] = order["arguments"]
    if order["arguments"][:1] == ["demo"]:
        process.install()
    if patience := os.environ.pop(PATIENCE, ""):
        sys.modules["recovery.cli.shell_completion"].TIMEOUT = float(patience)  # type: ignore[attr-defined]
    try:
        runpy.run_module("recovery", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int):
            raise
        _finish()
        os._exit(end.code)


def _finish() -> None:
    """What Python does at the end of a process, but for taking down its modules."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()


if __name__ == "__main__":
    serve(sys.argv[1])
