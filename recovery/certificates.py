"""TLS options of an address, and checks of the certificate files that they name on this machine.

Drivers read these files when they first connect. A driver's error names neither the unusable file nor the reason, and
for the password of a key a driver even prompts on the terminal. Therefore the files are checked here first.
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
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which allows reading an expired certificate."""


@dataclass(frozen=True, slots=True)
class Names:
    """Names for error messages: the server, the variable of its address, and its TLS options."""

    server: str
    variable: str
    switch: str
    """The text in the address that turns TLS on."""
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
    """The TLS options of an address: which certificates to use, and what to verify."""

    names: Names
    address: str
    """The part of the address that may be shown."""
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    password: str | None = None
    verifies: bool = True
    checks_host: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the SSL context for connections. Raise SettingsError if a file is unusable."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.verifies and self.checks_host
        context.verify_mode = ssl.CERT_REQUIRED if self.verifies else ssl.CERT_NONE
        if self.ca is not None:
            self._load_authority(context, self.ca)
        elif self.verifies:
            context.load_default_certs()
        self._load_own(context)
        return context

    def own(self) -> dict[str, Any] | None:
        """Return our own certificate, in the form of `SSLSocket.getpeercert`; None if the address names none."""
        return None if self.cert is None else _decoded(self.cert, self._load_own)

    def check(self) -> None:
        """Raise SettingsError unless all named files are usable and our certificate is valid now."""
        self.context()
        if (own := self.own()) is None:
            return
        began, ends = (
            datetime.fromtimestamp(ssl.cert_time_to_seconds(own[name]), UTC) for name in ("notBefore", "notAfter")
        )
        now = datetime.now(UTC)
        if not began <= now <= ends:
            problem = f"expired on {ends:%Y-%m-%d}" if ends < now else f"is not valid before {began:%Y-%m-%d %H:%M} UTC"
            raise self._unusable(
                self.names.cert, self.cert, f"{problem}: have a new one made, or set this machine's clock"
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
                raise self._unusable(self.names.key, self.key, f"can't be used without {self.names.cert}=FILE")
            return
        key, key_option = (self.cert, self.names.cert) if self.key is None else (self.key, self.names.key)
        for option, path, kind in ((self.names.cert, self.cert, "CERTIFICATE"), (key_option, key, "PRIVATE KEY")):
            if f"{kind}-----".encode() not in self._read(option, path):
                raise self._unusable(option, path, f"holds no {kind.lower()} in PEM form")
        prompts: list[bool] = []

        def password() -> str:
            prompts.append(True)
            return self.password or ""

        try:
            context.load_cert_chain(self.cert, key, password)
        except ssl.SSLError as error:
            try:  # OpenSSL's error does not say which file is bad, so load the certificates alone
                blocks = _CERTIFICATE.findall(self._read(self.names.cert, self.cert).decode("ascii", "replace"))
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="\n".join(blocks))
            except (ssl.SSLError, ValueError):
                raise self._unusable(self.names.cert, self.cert, "holds a certificate that can't be read") from None
            raise self._unusable(key_option, key, self._key_problem(error, bool(prompts))) from None

    def _key_problem(self, error: ssl.SSLError, has_password: bool) -> str:
        if error.reason == "KEY_VALUES_MISMATCH":
            return f"holds a private key that does not belong to the certificate in {self.cert}"
        if has_password and self.names.password is None:
            return (
                "holds a private key with a password, which can't be given: remove the password (openssl pkey), and "
                "set mode 600"
            )
        if has_password:
            detail = "which is different from the one" if self.password else "but none is given"
            return f"holds a private key with a password, {detail} in {self.names.password}"
        return "holds a private key that can't be read"

    def _read(self, option: str, path: str) -> bytes:
        try:
            return Path(path).read_bytes()
        except FileNotFoundError:
            problem = "there is no such file"
        except PermissionError:
            problem = "this user may not read it; correct the owner and mode of the file and its folders"
        except OSError as error:
            problem = f"can't be read: {error.strerror}"
        raise self._unusable(option, path, problem)

    def _unusable(self, option: str, path: str | None, problem: str) -> SettingsError:
        return SettingsError(f"{self.names.variable}={self.address}: {option}={path}: {problem}")


def of_mongodb(uri: str) -> Tls | None:
    """Return the TLS options of a MongoDB address; None if it does not use TLS."""
    parts = read(uri)
    options = _options(parts)
    switch = options.get("tls", options.get("ssl"))
    # As in pymongo, any TLS option turns TLS on.
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
    """Return the TLS options of a Redis address; None if it does not use TLS."""
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
    """Return the subject or issuer of a certificate as text, such as `CN=mongo-1, O=servers`.

    Args:
        certificate: A certificate in the form of `SSLSocket.getpeercert`.
        whose: `subject` or `issuer`.

    Returns:
        The name, or `nobody` if the certificate has none.
    """
    short = {"commonName": "CN", "organizationName": "O", "organizationalUnitName": "OU"}
    pairs = [pair for part in certificate.get(whose, ()) for pair in part]
    return ", ".join(f"{short[name]}={value}" for name, value in reversed(pairs) if name in short) or "nobody"


def until(certificate: Mapping[str, Any]) -> datetime:
    """Return the time at which a certificate expires."""
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)


def _options(parts: Address | None) -> dict[str, str]:
    return {name.lower(): unquote_plus(value) for name, value in (parts.options if parts else ())}


def _is_true(text: str | None) -> bool:
    return text == "true"


def _decoded(path: str, load_own: Any) -> dict[str, Any] | None:
    """Return the fields of our own certificate; None if it cannot be decoded.

    Python decodes only a certificate that a peer has shown. Therefore this does a handshake with itself, in memory.
    """
    server_context, client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    load_own(server_context)
    load_own(client_context)
    client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
    server_context.verify_mode = ssl.CERT_REQUIRED
    server_context.verify_flags |= NO_CHECK_TIME | ssl.VERIFY_X509_PARTIAL_CHAIN
    server_context.load_verify_locations(path)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server, client = (
        server_context.wrap_bio(to_server, to_client, server_side=True),
        client_context.wrap_bio(to_client, to_server),
    )
    try:
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        return server.getpeercert()
    except (ssl.SSLError, ValueError):  # for example a certificate that is not for clients: the server decides on it
        return None
