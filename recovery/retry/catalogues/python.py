"""Errors that any actor may get: Python's own, and those of `recovery.errors`.

Python's errors are recognized by class and errno. Retriable codes begin at 21001, and codes that are not retriable at
41001.

`OWN` has the errors that actors get from this library: code 10101, and codes from 25001 and from 45001 on. It has no
entry for a server that is away, because the driver's error, from which such an error is raised, is more precise.
"""

from __future__ import annotations

import errno

from recovery.retry.catalogue import Catalogue, Entry
from recovery.retry.codes import CIRCUIT_OPEN, ErrorCode
from recovery.retry.reasons import (
    CIRCUIT_BREAKER_OPEN,
    NODE_NOT_AVAILABLE,
    RESOURCE_BUSY,
    SOCKET_CLOSED_WHILE_IN_FLIGHT,
    TIMEOUT_IN_FLIGHT,
    UNKNOWN,
)

REFUSED = ErrorCode(21001, "CONNECTION_REFUSED", "No server listens at the address, or the host can't be reached")
NAME_NOT_RESOLVED = ErrorCode(21002, "NAME_NOT_RESOLVED", "The name of a host can't be resolved")
CLOSED = ErrorCode(21003, "CONNECTION_CLOSED", "The connection was closed during the request")
TIMED_OUT = ErrorCode(21004, "TIMED_OUT", "No answer arrived in time")
BUSY = ErrorCode(21005, "RESOURCE_BUSY", "A resource of this machine is in use, or temporarily exhausted")
NOT_TRUSTED = ErrorCode(41001, "CERTIFICATE_NOT_TRUSTED", "One side does not trust the certificate of the other")
"""The code of a refused certificate. The catalogues of libraries that use TLS have it, too."""

NOT_TRUSTED_PATTERN = "CERTIFICATE_VERIFY_FAILED|_ALERT_(UNKNOWN_CA|BAD_CERTIFICATE|(UNSUPPORTED_)?CERTIFICATE)"
"""Pattern of OpenSSL's texts if the certificate of the server or of the client is refused."""

_UNREACHABLE = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN}
_CLOSED = {errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE, errno.ENOTCONN, errno.ESHUTDOWN, errno.ENETRESET}
_BUSY = {errno.EAGAIN, errno.EBUSY, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ETXTBSY, errno.EINTR}

PYTHON = Catalogue(
    "python",
    (
        Entry(NOT_TRUSTED, UNKNOWN, types=frozenset({"ssl.SSLCertVerificationError"})),
        Entry(NOT_TRUSTED, UNKNOWN, types=frozenset({"ssl.SSLError"}), pattern=NOT_TRUSTED_PATTERN),
        Entry(NAME_NOT_RESOLVED, NODE_NOT_AVAILABLE, types=frozenset({"socket.gaierror", "socket.herror"})),
        Entry(REFUSED, NODE_NOT_AVAILABLE, types=frozenset({"builtins.ConnectionRefusedError"})),
        Entry(REFUSED, NODE_NOT_AVAILABLE, types=frozenset({"builtins.OSError"}), numbers=frozenset(_UNREACHABLE)),
        Entry(
            TIMED_OUT,
            TIMEOUT_IN_FLIGHT,
            types=frozenset({"builtins.TimeoutError", "asyncio.exceptions.TimeoutError"}),
        ),
        Entry(CLOSED, SOCKET_CLOSED_WHILE_IN_FLIGHT, types=frozenset({"builtins.ConnectionError"})),
        Entry(CLOSED, SOCKET_CLOSED_WHILE_IN_FLIGHT, types=frozenset({"builtins.EOFError"}), pattern="(?i)connection"),
        Entry(
            CLOSED,
            SOCKET_CLOSED_WHILE_IN_FLIGHT,
            types=frozenset(
                {
                    "ssl.SSLEOFError",
                    "ssl.SSLZeroReturnError",
                    "asyncio.exceptions.IncompleteReadError",
                    "imaplib.IMAP4.abort",
                }
            ),
        ),
        # smtplib also raises this error if the program has not connected, which waiting does not cure.
        Entry(
            CLOSED,
            SOCKET_CLOSED_WHILE_IN_FLIGHT,
            types=frozenset({"smtplib.SMTPServerDisconnected"}),
            pattern="^(?!please run connect)",
        ),
        Entry(CLOSED, SOCKET_CLOSED_WHILE_IN_FLIGHT, types=frozenset({"builtins.OSError"}), numbers=frozenset(_CLOSED)),
        Entry(
            TIMED_OUT, TIMEOUT_IN_FLIGHT, types=frozenset({"builtins.OSError"}), numbers=frozenset({errno.ETIMEDOUT})
        ),
        Entry(BUSY, RESOURCE_BUSY, types=frozenset({"builtins.BlockingIOError"})),
        Entry(BUSY, RESOURCE_BUSY, types=frozenset({"builtins.OSError"}), numbers=frozenset(_BUSY)),
    ),
)

INVALID_INPUT = ErrorCode(10101, "INVALID_INPUT", "The actor's input is invalid or refused; nothing was changed")
RESULT_TIMEOUT = ErrorCode(25001, "RESULT_TIMEOUT", "A process that the actor waits for has not ended yet")
PROCESS_BROKEN = ErrorCode(45001, "PROCESS_BROKEN", "A process that the actor waits for ended without a result")
DAMAGED_RECORD = ErrorCode(45002, "DAMAGED_RECORD", "A record can't be read")


def _named(*names: str) -> frozenset[str]:
    return frozenset(f"recovery.errors.{name}" for name in names)


OWN = Catalogue(
    "recovery",
    (
        Entry(INVALID_INPUT, UNKNOWN, types=_named("InputError", "SettingsError")),
        Entry(RESULT_TIMEOUT, TIMEOUT_IN_FLIGHT, types=_named("ResultTimeout")),
        Entry(PROCESS_BROKEN, UNKNOWN, types=_named("ProcessBroken")),
        Entry(DAMAGED_RECORD, UNKNOWN, types=_named("DamagedRecord")),
        Entry(CIRCUIT_OPEN, CIRCUIT_BREAKER_OPEN, types=frozenset({"recovery.retry.breaker.CircuitOpen"})),
    ),
)
