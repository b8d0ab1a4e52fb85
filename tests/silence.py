"""A way to a server that goes silent, as behind a firewall that drops: nothing is reset, nobody is told."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from recovery.stack.server_process import HOST


class Way:
    """Forwards from `port` to a server of this machine, in a thread of its own.

    While it is silent nothing is read, so neither end learns what the other does, not even that it is gone.
    """

    def __init__(self, behind: int) -> None:
        self._behind = behind
        self._listening = socket.socket()
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listening.bind((HOST, 0))
        self._listening.listen(128)
        self.port: int = self._listening.getsockname()[1]
        self._ends: dict[socket.socket, socket.socket] = {}
        self._forgotten: list[socket.socket] = []
        self._fillers: list[socket.socket] = []
        self._wake, self._woken = os.pipe()
        self._speaking, self._idle = threading.Event(), threading.Event()
        self._closing = False
        self._speaking.set()
        self._thread = threading.Thread(target=self._forward, name="way", daemon=True)
        self._thread.start()

    def silence(self, *, answers_calls: bool) -> None:
        """Drop what is said from now on. New connections are accepted, and then hear nothing; or are not even that."""
        self._idle.clear()
        self._speaking.clear()
        os.write(self._woken, b"x")
        assert self._idle.wait(10), "still forwarding"
        if not answers_calls:
            self._listening.listen(0)
            for _ in range(4):  # what waits to be accepted fills what is left: the kernel drops who comes then
                filler = socket.socket()
                filler.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    filler.connect((HOST, self.port))
                self._fillers.append(filler)

    def speak(self, *, remembers: bool) -> None:
        """Forward again: what was said meanwhile too, or, where it `remembers` nothing, on new connections alone. The
        old ones stay silent for ever."""
        self._listening.listen(128)
        for filler in self._fillers:
            filler.close()
        self._fillers.clear()
        if not remembers:
            self._forgotten += self._ends
            self._ends.clear()
        self._speaking.set()

    def close(self) -> None:
        self._closing = True
        self._speaking.set()
        os.write(self._woken, b"x")
        self._thread.join(10)
        for one in [*self._ends, *self._forgotten, *self._fillers, self._listening]:
            one.close()
        os.close(self._wake)
        os.close(self._woken)

    def _forward(self) -> None:
        while not self._closing:
            with selectors.DefaultSelector() as ready:
                for one in [self._listening, *self._ends]:
                    ready.register(one, selectors.EVENT_READ)
                ready.register(self._wake, selectors.EVENT_READ)
                while self._speaking.is_set() and not self._closing:
                    for key, _ in ready.select():
                        if key.fileobj is self._listening:
                            for one in self._accept():
                                ready.register(one, selectors.EVENT_READ)
                        elif key.fileobj == self._wake:
                            os.read(self._wake, 1)
                        elif key.fileobj in self._ends and self._speaking.is_set():
                            for one in self._hand_on(key.fileobj):
                                ready.unregister(one)
                                one.close()
            self._idle.set()
            self._speaking.wait()

    def _accept(self) -> tuple[socket.socket, ...]:
        client, _ = self._listening.accept()
        server = socket.create_connection((HOST, self._behind))
        self._ends |= {client: server, server: client}
        return client, server

    def _hand_on(self, end: socket.socket) -> tuple[socket.socket, ...]:
        """Hand on what is there; the ends that are to be closed."""
        other = self._ends[end]
        try:
            said = end.recv(65536)
            if said:
                other.sendall(said)
                return ()
        except OSError:
            pass
        del self._ends[end], self._ends[other]
        return end, other


@contextmanager
def way_to(port: int) -> Iterator[Way]:
    """A way to a server, while the block runs."""
    way = Way(port)
    try:
        yield way
    finally:
        way.close()
