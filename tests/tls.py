"""Certificates of a test, and a server that speaks TLS with one of them and hands on what it hears."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from recovery.stack.server_process import HOST


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate for this name or address, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl: it makes the certificates")
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    kind = "IP" if name[0].isdigit() else "DNS"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=test", "-addext", f"subjectAltName={kind}:{name}"]
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


class Terminator:
    """Speaks TLS at `port`, and hands on to the server behind it. With an `authority` clients need a certificate that
    it has signed."""

    def __init__(
        self,
        certificate: tuple[Path, Path],
        behind: int,
        authority: Path | None = None,
        port: int = 0,
        newest: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED,
    ) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(*certificate)
        self._context.maximum_version = newest
        if authority is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(authority)
        self._behind = behind
        self._listening = socket.create_server((HOST, port))
        self.port: int = self._listening.getsockname()[1]
        self.heard = b""
        """All that clients have said so far, without the encryption."""
        self.refused = 0
        """Clients that did not accept the certificate."""
        self._clients: list[ssl.SSLSocket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Be away: for those that are connected as well."""
        for one in (self._listening, *self._clients):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        try:
            client = self._context.wrap_socket(plain, server_side=True)
        except OSError:
            self.refused += 1
            return
        try:
            server = socket.create_connection((HOST, self._behind))
        except OSError:
            client.close()
            return
        self._clients.append(client)
        back = threading.Thread(target=_pump, args=(server, client), daemon=True)
        back.start()
        with suppress(OSError):
            while said := client.recv(65536):
                self.heard += said
                server.sendall(said)
        for one in (server, client):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        back.join()
        server.close()
        client.close()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while said := source.recv(65536):
            sink.sendall(said)


@contextmanager
def terminated(certificate: tuple[Path, Path], behind: int) -> Iterator[Terminator]:
    """A terminator, while the block runs."""
    made = Terminator(certificate, behind)
    try:
        yield made
    finally:
        made.close()
