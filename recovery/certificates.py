"""TLS as an address asks for it, and the certificates that it names on this machine.

Drivers read these files when they first connect, and say of one that can't be used neither which it is nor what is the
matter with it; for the password of a key they even ask the terminal. So they are looked at here before any driver is.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

from recovery.addresses import Address, public, read
from recovery.errors import SettingsError

_CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

NO_CHECK_TIME = ssl.VerifyFlags(0x200000)
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: a certificate that expired can be read, too."""


@dataclass(frozen=True, slots=True)
class Names:
    """The names of a server's address, and of its options of TLS, for error messages."""

    server: str
    variable: str
    switch: str
    """What is to be written for TLS."""
    ca: str
    cert: str
    key: str
    password: str | None


MONGODB = Names(
    *("MongoDB", "RECOVERY_MONGO_URI", "tls=true"),
    *("tlsCAFile", "tlsCertificateKeyFile", "tlsCertificateKeyFile", "tlsCertificateKeyFilePassword"),
)
REDIS = Names("Redis", "RECOVERY_BROKER_URL", "rediss://", "ssl_ca_certs", "ssl_certfile", "ssl_keyfile", None)


@dataclass(frozen=True, slots=True)
class Tls:
    """What an address asks of TLS: which certificates, and what is verified."""

    names: Names
    address: str
    """Of it, what may be shown."""
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    password: str | None = None
    verifies: bool = True
    checks_host: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the context for connections. Raises SettingsError for a file that can't be used."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        made.check_hostname = self.verifies and self.checks_host
        made.verify_mode = ssl.CERT_REQUIRED if self.verifies else ssl.CERT_NONE
        if self.ca is not None:
            self._load_authority(made, self.ca)
        elif self.verifies:
            made.load_default_certs()
        self._load_own(made)
        return made

    def own(self) -> dict[str, Any] | None:
        """Return our own certificate, in the form of `SSLSocket.getpeercert`; None if there is none."""
        return None if self.cert is None else _decoded(self.cert, self._load_own)

    def check(self) -> None:
        """Raise SettingsError unless all files that are named can be used now."""
        self.context()
        if (own := self.own()) is None:
            return
        began, ends = (
            datetime.fromtimestamp(ssl.cert_time_to_seconds(own[one]), UTC) for one in ("notBefore", "notAfter")
        )
        now = datetime.now(UTC)
        if not began <= now <= ends:
            said = f"expired on {ends:%Y-%m-%d}" if ends < now else f"is not valid before {began:%Y-%m-%d %H:%M} UTC"
            raise self._unusable(
                self.names.cert, self.cert, f"{said}: have a new one made, or set this machine's clock"
            )

    def _load_authority(self, context: ssl.SSLContext, path: str) -> None:
        self._read(self.names.ca, path)
        try:
            context.load_verify_locations(path)
        except ssl.SSLError:
            raise self._unusable(self.names.ca, path, "holds no certificate in PEM form") from None

    def _load_own(self, context: ssl.SSLContext) -> None:
        if self.cert is None:
            if self.key is not None:
                raise self._unusable(self.names.key, self.key, f"is of no use without {self.names.cert}=FILE")
            return
        key, of_key = (self.cert, self.names.cert) if self.key is None else (self.key, self.names.key)
        for option, path, kind in ((self.names.cert, self.cert, "CERTIFICATE"), (of_key, key, "PRIVATE KEY")):
            if f"{kind}-----".encode() not in self._read(option, path):
                raise self._unusable(option, path, f"holds no {kind.lower()} in PEM form")
        asked: list[bool] = []

        def password() -> str:
            asked.append(True)
            return self.password or ""

        try:
            context.load_cert_chain(self.cert, key, password)
        except ssl.SSLError as error:
            try:  # the certificate alone, as any is read: nothing tells which of the two it was
                blocks = _CERTIFICATE.findall(self._read(self.names.cert, self.cert).decode("ascii", "replace"))
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(blocks))
            except (ssl.SSLError, ValueError):
                raise self._unusable(self.names.cert, self.cert, "holds a certificate that can't be read") from None
            raise self._unusable(of_key, key, self._of_key(error, bool(asked))) from None

    def _of_key(self, error: ssl.SSLError, asked: bool) -> str:
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"holds a private key that does not belong to the certificate in {self.cert}"
        if asked and self.names.password is None:
            return "holds a private key under a password, which can't be given: remove it (openssl pkey), mode 600"
        if asked:
            said = "which is not the one" if self.password else "and there is none"
            return f"holds a private key under a password, {said} in {self.names.password}"
        return "holds a private key that can't be read"

    def _read(self, option: str, path: str) -> bytes:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            said = "there is no such file"
        except PermissionError:
            said = "this user may not read it; see to its owner and mode, and those of its folders"
        except OSError as error:
            said = f"can't be read: {error.strerror}"
        raise self._unusable(option, path, said)

    def _unusable(self, option: str, path: str | None, said: str) -> SettingsError:
        return SettingsError(f"{self.names.variable}={self.address}: {option}={path}: {said}")


def of_mongodb(uri: str) -> Tls | None:
    """Return what an address of MongoDB asks of TLS; None if it asks for none."""
    parts = read(uri)
    options = _options(parts)
    switch = options.get("tls", options.get("ssl"))
    # As pymongo has it, any option of TLS switches it on.
    if (
        parts is None
        or switch == "false"
        or not (switch or parts.scheme == "mongodb+srv" or any(name.startswith("tls") for name in options))
    ):
        return None
    insecure = _is_true(options.get("tlsinsecure"))
    own = options.get("tlscertificatekeyfile")
    return Tls(
        MONGODB,
        public(uri),
        ca=options.get("tlscafile"),
        cert=own,
        key=own,
        password=options.get("tlscertificatekeyfilepassword"),
        verifies=not (insecure or _is_true(options.get("tlsallowinvalidcertificates"))),
        checks_host=not (insecure or _is_true(options.get("tlsallowinvalidhostnames"))),
    )


def of_redis(url: str) -> Tls | None:
    """Return what an address of Redis asks of TLS; None if it asks for none."""
    parts = read(url)
    if parts is None or parts.scheme != "rediss":
        return None
    options = _options(parts)
    return Tls(
        REDIS,
        public(url),
        ca=options.get("ssl_ca_certs"),
        cert=options.get("ssl_certfile"),
        key=options.get("ssl_keyfile"),
        verifies=options.get("ssl_cert_reqs") != "none",
        checks_host=options.get("ssl_check_hostname") != "false",
    )


def named(certificate: Mapping[str, Any], whose: str = "subject") -> str:
    """Return whose certificate it is, or who signed it: `CN=mongo-1, O=servers`."""
    short = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU"}
    pairs = [pair for part in certificate.get(whose, ()) for pair in part]
    return ", ".join(f"{short[name]}={value}" for name, value in reversed(pairs) if name in short) or "nobody"


def until(certificate: Mapping[str, Any]) -> datetime:
    """Return until when a certificate is valid."""
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)


def _options(parts: Address | None) -> dict[str, str]:
    return {name.lower(): unquote_plus(value) for name, value in (parts.options if parts else ())}


def _is_true(text: str | None) -> bool:
    return text == "true"


def _decoded(path: str, load_own: Any) -> dict[str, Any] | None:
    """Return what a certificate says. Python reads only a peer's certificate, so we are our own peer, in memory."""
    asks, shows = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    load_own(asks)
    load_own(shows)
    shows.check_hostname, shows.verify_mode = False, ssl.CERT_NONE
    asks.verify_mode = ssl.CERT_REQUIRED
    asks.verify_flags |= NO_CHECK_TIME | ssl.VERIFY_X509_PARTIAL_CHAIN
    asks.load_verify_locations(path)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, client = asks.wrap_bio(there, back, server_side=True), shows.wrap_bio(back, there)
    try:
        for _ in range(4):
            for one in (client, server):
                try:
                    one.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        return server.getpeercert()
    except (ssl.SSLError, ValueError):  # one that is for no client, which its server is to judge
        return None
