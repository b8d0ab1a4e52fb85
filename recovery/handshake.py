"""Diagnosis of failed TLS connections: ask the server itself, after a driver has failed to connect.

A driver's error is OpenSSL's text. It does not say whose certificate is wrong, for which host it is made, or when it
expires. A MongoDB that requires our certificate only closes the connection. Therefore this module repeats the handshake
by itself. It sends no data after the handshake, so no password either.

The handshake is a second connection, a moment later. A fault is only reported if this connection fails, too.
"""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from recovery.certificates import NO_CHECK_TIME, Names, Tls, named, until

TIMEOUT = 1.0
"""Seconds for each handshake. The driver has waited longer, and a server that answers at all needs less than a second.
"""
LINGER = 0.5
"""Seconds to wait after the handshake for the server to reject our certificate or to close the connection."""

_UNVOUCHED = (2, 18, 19, 20, 21)
_NOT_YET, _EXPIRED, _WRONG_NAME = 9, 10, (62, 64)
"""Values of OpenSSL's X509_V_ERR_… constants."""
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_HANDSHAKE, _CERTIFICATE_REQUEST = 22, 13
"""The type of a handshake record, and of the CertificateRequest message in it, in TLS 1.2."""

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong, and how to correct it: two sentences without full stops. The first one has no subject."""

    what: str
    advice: str


@dataclass(slots=True)
class _Handshake:
    """The outcome of a handshake."""

    raw: bytearray = field(default_factory=bytearray)
    """All bytes that the server sent."""
    error: ssl.SSLError | None = None
    closed: bool = False
    """Whether the server closed the connection without giving a reason."""
    done: bool = False
    peer: dict[str, Any] | None = None
    der: bytes | None = None


def fault(place: Place, tls: Tls) -> Fault | None:
    """Return what is wrong in TLS between this machine and a server.

    Returns:
        The fault; None if the handshake succeeds, or the server does not answer at all.
    """
    handshake = _shake(place, tls.context())
    error = handshake.error
    if isinstance(error, ssl.SSLCertVerificationError):
        return _certificate_fault(place, tls, error)
    if error is not None and error.reason in _NO_TLS:
        return _no_tls_fault(tls.names)
    if error is not None and "ALERT" in (error.reason or ""):
        return _alert_fault(tls, error.reason)
    if error is not None:
        return Fault(f"fails the TLS handshake: {_readable(error.reason)}", "Compare the versions and ciphers of both")
    if handshake.done and handshake.closed and _asks_for_ours(place, tls):
        return _own_certificate_missing(tls.names) if tls.cert is None else _own_certificate_refused(tls, "")
    return None


def speaks_tls(place: Place, names: Names) -> Fault | None:
    """Return a fault if a server that closed the connection expects TLS although its address does not say so; else
    None."""
    # The server may ask for a certificate before the handshake ends. Its first record is in TLS in any case.
    if not _shake(place, _unverified(), linger=0).raw.startswith(bytes([_HANDSHAKE])):
        return None
    change = f"write {names.switch}" if "://" in names.switch else f"add {names.switch}"
    return Fault(
        "speaks TLS, and its address does not say so",
        f"In {names.variable} {change}, and {names.ca}=FILE with the certificate of its authority",
    )


def _certificate_fault(place: Place, tls: Tls, error: ssl.SSLCertVerificationError) -> Fault:
    host, names, certificate = place[0], tls.names, _certificate(place, tls)
    code = error.verify_code
    if code in _WRONG_NAME:
        made_for = ", ".join(value for _, value in certificate.get("subjectAltName", ())) or named(certificate)
        advice = f"Name the server in {names.variable} as its certificate does, or have one made for {host}"
        return Fault(f"shows a certificate that is for {made_for} and not for {host}", advice)
    if code == _EXPIRED:
        expiry = f" on {until(certificate):%Y-%m-%d}" if certificate else ""
        return Fault(f"shows a certificate that expired{expiry}", f"Have a new one made for it; {_clock_advice()}")
    if code == _NOT_YET:
        return Fault("shows a certificate that is not valid yet", f"Have another one made for it; {_clock_advice()}")
    if code in _UNVOUCHED:
        issuer = f" (signed by {named(certificate, 'issuer')})" if certificate else ""
        authority = f"{tls.ca} ({names.ca}) does not vouch" if tls.ca else "no authority known to this machine vouches"
        return Fault(
            f"shows a certificate{issuer} for which {authority}",
            "If it is the right server, give the certificate of the authority that signed its own: "
            f"{names.ca}=FILE in {names.variable}",
        )
    return Fault(f"shows an unusable certificate: {error.verify_message}", "Have another one made for it")


def _alert_fault(tls: Tls, reason: str) -> Fault:
    alert = reason.partition("ALERT_")[2]
    if tls.cert is None and alert in ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE"):
        return _own_certificate_missing(tls.names)
    if tls.cert is not None and alert.startswith(
        ("CERTIFICATE", "UNKNOWN_CA", "BAD_CERT", "UNSUPPORTED_CERT", "ACCESS")
    ):
        return _own_certificate_refused(tls, f": {_readable(alert)}")
    return Fault(f"refuses TLS: {_readable(alert)}", "Compare the versions and ciphers of both")


def _own_certificate_missing(names: Names) -> Fault:
    options = names.cert if names.key == names.cert else f"{names.cert}=FILE and {names.key}"
    return Fault(
        f"requires a client certificate, but {names.variable} names none",
        f"Give one that is signed by an authority which the server trusts: {options}=FILE",
    )


def _own_certificate_refused(tls: Tls, detail: str) -> Fault:
    own = tls.own()
    identity = f" ({named(own)}, signed by {named(own, 'issuer')})" if own else ""
    return Fault(
        f"rejects our certificate {tls.cert}{identity}{detail}",
        "Give a client certificate that is signed by an authority which the server trusts: "
        f"{tls.names.cert}=FILE in {tls.names.variable}",
    )


def _no_tls_fault(names: Names) -> Fault:
    return Fault(
        "does not speak TLS at this port",
        "Turn TLS on there, or name the port that has it; for a server without TLS, remove "
        f"{names.switch} from {names.variable}",
    )


def _asks_for_ours(place: Place, tls: Tls) -> bool:
    """Return whether the server asks for our certificate. The request is only readable up to TLS 1.2."""
    context = tls.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return _CERTIFICATE_REQUEST in _messages(bytes(_shake(place, context, linger=0).raw))


def _messages(raw: bytes) -> list[int]:
    """Return the types of the unencrypted handshake messages."""
    messages, position = b"", 0
    while position + 5 <= len(raw) and raw[position] == _HANDSHAKE:
        size = int.from_bytes(raw[position + 3 : position + 5])
        messages += raw[position + 5 : position + 5 + size]
        position += 5 + size
    types, position = [], 0
    while position + 4 <= len(messages):
        types.append(messages[position])
        position += 4 + int.from_bytes(messages[position + 1 : position + 4])
    return types


def _certificate(place: Place, tls: Tls) -> dict[str, Any]:
    """Return the fields of the server's certificate, even if it is invalid; an empty dict if it can't be read."""
    der = _shake(place, _unverified(tls), linger=0).der
    if der is None:
        return {}
    context = _unverified(tls)
    context.verify_mode = ssl.CERT_REQUIRED
    # Python decodes only a verified certificate. Therefore the certificate itself is loaded as its authority.
    context.verify_flags |= NO_CHECK_TIME | ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=der)
    return _shake(place, context, linger=0).peer or {}


def _unverified(tls: Tls | None = None) -> ssl.SSLContext:
    """Return a context that accepts any certificate, and shows ours if the server asks for it.

    No data is sent over such a connection after the handshake.
    """
    if tls is not None:
        return replace(tls, verifies=False, ca=None).context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _shake(place: Place, context: ssl.SSLContext, linger: float = LINGER) -> _Handshake:
    """Do a handshake, then wait up to `linger` seconds for an alert or the end of the connection. Does not raise."""
    result, incoming, outgoing = _Handshake(), ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(OSError), socket.create_connection(place, TIMEOUT) as connection:
        tls = context.wrap_bio(incoming, outgoing, server_hostname=place[0])
        try:
            while not result.done and not result.closed:
                result.done = _step(tls.do_handshake, connection, incoming, outgoing, result)
            if result.done:
                result.peer, result.der = tls.getpeercert(), tls.getpeercert(binary_form=True)
                ends = time.monotonic() + linger
                while not result.closed and (remaining := ends - time.monotonic()) > 0:
                    connection.settimeout(remaining)
                    result.closed = (
                        _step(lambda: not tls.read(1), connection, incoming, outgoing, result) or result.closed
                    )
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            result.closed = True
        except ssl.SSLError as error:
            result.error = error
    return result


def _step(
    step: Any, connection: socket.socket, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, result: _Handshake
) -> bool:
    """Take one step of the handshake; if it waits for the server, read what the server sends.

    Return whether the step is done.
    """
    try:
        return step() is not False
    except ssl.SSLWantReadError:
        pass
    finally:
        if outgoing.pending:
            connection.sendall(outgoing.read())
    if data := connection.recv(65536):
        result.raw += data
        incoming.write(data)
    else:
        result.closed = True
    return False


def _readable(reason: str | None) -> str:
    return (reason or "an error without a name").lower().replace("_", " ")


def _clock_advice() -> str:
    return f"if it is valid, set the clock of this machine, which says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
