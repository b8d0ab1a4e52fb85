"""The commands of docs/tls.md, as they stand there."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, blocks


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl: it makes the certificates")
def test_they_are_taken_by_the_strictest_of_pythons(tmp_path: Path) -> None:
    """From 3.13 on one verifies strictly by default: a certificate has to say what it is for, and who signed it."""
    first = blocks(DOCS / "tls.md", "console")[0]
    for command in first.split("$ ")[1:]:
        done = subprocess.run(["bash", "-ec", command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=tmp_path / "ca.pem")
    server.load_cert_chain(tmp_path / "db1.both")
    server.load_verify_locations(tmp_path / "ca.pem")
    server.verify_mode = ssl.CERT_REQUIRED
    client.load_cert_chain(tmp_path / "worker.both")
    for context in (server, client):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="db1.example"),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    assert [end.getpeercert()["subject"][-1][0][1] for end in ends] == ["db1.example", "shop-worker"]  # type: ignore[index]
