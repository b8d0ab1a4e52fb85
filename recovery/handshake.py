"""Why a server and we come to no terms in TLS: asked of the server itself, once a driver has failed to connect.

A driver's error is the text of OpenSSL's, which says neither whose certificate it is nor for whom, nor until when; and
a MongoDB that misses our certificate says nothing at all, it closes the connection. So the handshake is done again
here, by itself and without a word of ours behind it, no password above all.

Limits: it is a second connection, a moment later. What it finds is told only where it fails as well.
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
"""Seconds for each handshake. The driver was given several; a server that answered it at all answers in one."""
LINGER = 0.5
"""Seconds in which a server that does not take our certificate says so, or closes the connection."""

_UNVOUCHED = (2, 18, 19, 20, 21)
_NOT_YET, _EXPIRED, _WRONG_NAME = 9, 10, (62, 64)
"""OpenSSL's X509_V_ERR_…"""
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_HANDSHAKE, _CERTIFICATE_REQUEST = 22, 13
"""Of a record, and of a message in one, as TLS 1.2 numbers them."""

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Fault:
    """What doesn't fit, and what to do: two sentences without their full stops, of which the first has no subject."""

    what: str
    advice: str


@dataclass(slots=True)
class _Handshake:
    """The outcome of a handshake."""

    raw: bytearray = field(default_factory=bytearray)
    """All that the server said, as it came."""
    error: ssl.SSLError | None = None
    closed: bool = False
    """Whether the server closed the connection, without a word of why."""
    done: bool = False
    peer: dict[str, Any] | None = None
    der: bytes | None = None


def fault(place: Place, tls: Tls) -> Fault | None:
    """Return what doesn't fit between us and a server; None if TLS is not to blame, or the server does not answer at
    all."""
    seen = _shake(place, tls.context())
    error = seen.error
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_server(place, tls, error)
    if error is not None and error.reason in _NO_TLS:
        return _speaks_none(tls.names)
    if error is not None and "ALERT" in (error.reason or ""):
        return _of_alert(tls, error.reason)
    if error is not None:
        return Fault(f"comes to no terms in TLS: {_words(error.reason)}", "Compare the versions and ciphers of both")
    if seen.done and seen.closed and _asks_for_ours(place, tls):
        return _missing(tls.names) if tls.cert is None else _not_taken(tls, "")
    return None


def speaks_tls(place: Place, names: Names) -> Fault | None:
    """Whether a server that closed the connection wants TLS, which its address doesn't say."""
    # It may ask for a certificate before it is done; its first word is in TLS all the same.
    if not _shake(place, _unverified(), linger=0).raw.startswith(bytes([_HANDSHAKE])):
        return None
    how = f"write {names.switch}" if "://" in names.switch else f"add {names.switch}"
    return Fault(
        "speaks TLS, and its address does not say so",
        f"In {names.variable} {how}, and {names.ca}=FILE with who vouches for it",
    )


def _of_server(place: Place, tls: Tls, error: ssl.SSLCertVerificationError) -> Fault:
    host, names, found = place[0], tls.names, _certificate(place, tls)
    code = error.verify_code
    if code in _WRONG_NAME:
        made_for = ", ".join(value for _, value in found.get("subjectAltName", ())) or named(found)
        advice = f"Name the server in {names.variable} as its certificate does, or have one made for {host}"
        return Fault(f"shows a certificate that is for {made_for} and not for {host}", advice)
    if code == _EXPIRED:
        on = f" on {until(found):%Y-%m-%d}" if found else ""
        return Fault(f"shows a certificate that expired{on}", f"Have a new one made for it; {_clock()}")
    if code == _NOT_YET:
        return Fault("shows a certificate that is not valid yet", f"Have another one made for it; {_clock()}")
    if code in _UNVOUCHED:
        by = f" (signed by {named(found, 'issuer')})" if found else ""
        who = f"{tls.ca} ({names.ca}) does not vouch" if tls.ca else "no authority known to this machine vouches"
        return Fault(
            f"shows a certificate{by} for which {who}",
            "If it is the right server, give the certificate of the authority that signed its own: "
            f"{names.ca}=FILE in {names.variable}",
        )
    return Fault(f"shows a certificate that does not do: {error.verify_message}", "Have another one made for it")


def _of_alert(tls: Tls, reason: str) -> Fault:
    word = reason.partition("ALERT_")[2]
    if tls.cert is None and word in ("CERTIFICATE_REQUIRED", "HANDSHAKE_FAILURE", "BAD_CERTIFICATE"):
        return _missing(tls.names)
    if tls.cert is not None and word.startswith(
        ("CERTIFICATE", "UNKNOWN_CA", "BAD_CERT", "UNSUPPORTED_CERT", "ACCESS")
    ):
        return _not_taken(tls, f": {_words(word)}")
    return Fault(f"refuses TLS: {_words(word)}", "Compare the versions and ciphers of both")


def _missing(names: Names) -> Fault:
    needed = names.cert if names.key == names.cert else f"{names.cert}=FILE and {names.key}"
    return Fault(
        f"asks for a certificate of ours, and {names.variable} names none",
        f"Give one that an authority of the server's has signed: {needed}=FILE",
    )


def _not_taken(tls: Tls, why: str) -> Fault:
    own = tls.own()
    of = f" ({named(own)}, signed by {named(own, 'issuer')})" if own else ""
    return Fault(
        f"does not take our certificate {tls.cert}{of}{why}",
        "Give one that an authority of the server's has signed, for clients: "
        f"{tls.names.cert}=FILE in {tls.names.variable}",
    )


def _speaks_none(names: Names) -> Fault:
    return Fault(
        "does not speak TLS at this port",
        f"Have it do so, or name the port where it does; without TLS there is no {names.switch} in {names.variable}",
    )


def _asks_for_ours(place: Place, tls: Tls) -> bool:
    """Whether the server asks for our certificate. This can be read up to TLS 1.2."""
    context = tls.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return _CERTIFICATE_REQUEST in _messages(bytes(_shake(place, context, linger=0).raw))


def _messages(raw: bytes) -> list[int]:
    """Return the kinds of the handshake's messages, as far as they are not encrypted."""
    text, at = b"", 0
    while at + 5 <= len(raw) and raw[at] == _HANDSHAKE:
        size = int.from_bytes(raw[at + 3 : at + 5])
        text += raw[at + 5 : at + 5 + size]
        at += 5 + size
    kinds, at = [], 0
    while at + 4 <= len(text):
        kinds.append(text[at])
        at += 4 + int.from_bytes(text[at + 1 : at + 4])
    return kinds


def _certificate(place: Place, tls: Tls) -> dict[str, Any]:
    """Return what the server's certificate says, whatever is wrong with it; nothing if it can't be read."""
    der = _shake(place, _unverified(tls), linger=0).der
    if der is None:
        return {}
    reading = _unverified(tls)
    reading.verify_mode = ssl.CERT_REQUIRED
    # Python reads only what it has verified: so it vouches for itself.
    reading.verify_flags |= NO_CHECK_TIME | ssl.VERIFY_X509_PARTIAL_CHAIN
    reading.load_verify_locations(cadata=der)
    return _shake(place, reading, linger=0).peer or {}


def _unverified(tls: Tls | None = None) -> ssl.SSLContext:
    """Return a context that takes any certificate, and shows ours if the server asks for it. Nothing is sent to a
    server that is not verified."""
    if tls is not None:
        return replace(tls, verifies=False, ca=None).context()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _shake(place: Place, context: ssl.SSLContext, linger: float = LINGER) -> _Handshake:
    """Do a handshake, and listen for a moment. Does not raise."""
    seen, incoming, outgoing = _Handshake(), ssl.MemoryBIO(), ssl.MemoryBIO()
    with suppress(OSError), socket.create_connection(place, TIMEOUT) as plain:
        tls = context.wrap_bio(incoming, outgoing, server_hostname=place[0])
        try:
            while not seen.done and not seen.closed:
                seen.done = _step(tls.do_handshake, plain, incoming, outgoing, seen)
            if seen.done:
                seen.peer, seen.der = tls.getpeercert(), tls.getpeercert(binary_form=True)
                ends = time.monotonic() + linger
                while not seen.closed and (left := ends - time.monotonic()) > 0:
                    plain.settimeout(left)
                    seen.closed = _step(lambda: not tls.read(1), plain, incoming, outgoing, seen) or seen.closed
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            seen.closed = True
        except ssl.SSLError as error:
            seen.error = error
    return seen


def _step(ask: Any, plain: socket.socket, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, seen: _Handshake) -> bool:
    """Take one step of ours or, if it waits for the server, read what the server says. Return whether the step was
    done."""
    try:
        return ask() is not False
    except ssl.SSLWantReadError:
        pass
    finally:
        if outgoing.pending:
            plain.sendall(outgoing.read())
    if text := plain.recv(65536):
        seen.raw += text
        incoming.write(text)
    else:
        seen.closed = True
    return False


def _words(reason: str | None) -> str:
    return (reason or "an error without a name").lower().replace("_", " ")


def _clock() -> str:
    return f"if that can't be, set the clock of this machine, which says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
