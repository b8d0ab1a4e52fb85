"""An authority of a test, made by openssl: it signs certificates of servers and of clients, also such as don't fit."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

# Always of two days, and of a day in 2020.
NOW, LONG_AGO = (), ("-startdate", "20200101000000Z", "-enddate", "20200102000000Z")
_CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_CONFIG = """
[ca]
default_ca = own
[own]
new_certs_dir = {folder}
database = {folder}/index
serial = {folder}/serial
certificate = {folder}/ca.pem
private_key = {folder}/ca.key
default_md = sha256
default_days = 2
policy = any
unique_subject = no
copy_extensions = copy
x509_extensions = signed
[signed]
authorityKeyIdentifier = keyid
[any]
organizationName = optional
organizationalUnitName = optional
commonName = supplied
"""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files; `both` holds the one after the other."""

    cert: Path
    key: Path
    both: Path


class Authority:
    """Signs certificates. All is in one folder."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("needs openssl: it makes the certificates")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.cert = folder / "ca.pem"
        self._config = folder / "config"
        self._config.write_text(_CONFIG.format(folder=folder))
        (folder / "index").touch()
        (folder / "serial").write_text("01")
        request = ["req", "-x509", *_CURVE, "-nodes", "-days", "2", "-subj", f"/CN={name}"]
        request += ["-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        _openssl(*request, "-keyout", folder / "ca.key", "-out", self.cert)

    def server(self, *names: str, when: tuple[str, ...] = NOW) -> Pair:
        """A certificate of a server of these names and addresses."""
        kinds = ",".join(f"{'IP' if name[0].isdigit() else 'DNS'}:{name}" for name in names)
        return self._signed(f"server-{names[0]}", f"/O=servers/CN={names[0]}", when, f"subjectAltName={kinds}")

    def client(self, name: str, when: tuple[str, ...] = NOW, password: str | None = None) -> Pair:
        """A certificate of a client, of which MongoDB makes a user's name; the key may be under a password."""
        return self._signed(f"client-{name}", f"/O=clients/CN={name}", when, "extendedKeyUsage=clientAuth", password)

    def _signed(
        self, file: str, subject: str, when: tuple[str, ...], extension: str, password: str | None = None
    ) -> Pair:
        stem = f"{file}-{'expired' if when else 'good'}"
        pair = Pair(*(self._folder / f"{stem}.{kind}" for kind in ("pem", "key", "both")))
        request = self._folder / f"{stem}.csr"
        locked = ("-passout", f"pass:{password}") if password else ("-nodes",)
        _openssl("req", "-new", *_CURVE, *locked, "-subj", subject, "-addext", extension,
                 "-keyout", pair.key, "-out", request)  # fmt: skip
        _openssl("ca", "-batch", "-notext", "-config", self._config, "-in", request, "-out", pair.cert, *when)
        pair.both.write_text(pair.cert.read_text() + pair.key.read_text())
        for secret in (pair.key, pair.both):
            secret.chmod(0o600)
        return pair


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
