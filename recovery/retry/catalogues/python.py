"""Errors of Python itself, by class and by the operating system's number. Codes from 21000 on; 41000 what waiting
does not cure."""

from __future__ import annotations

import errno

from recovery.retry.catalogue import Catalogue, Entry
from recovery.retry.codes import ErrorCode
from recovery.retry.reasons import (
    NODE_NOT_AVAILABLE,
    RESOURCE_BUSY,
    SOCKET_CLOSED_WHILE_IN_FLIGHT,
    TIMEOUT_IN_FLIGHT,
    UNKNOWN,
)

REFUSED = ErrorCode(21001, "CONNECTION_REFUSED", "Nothing listens there, or the host can't be reached")
NAME_NOT_RESOLVED = ErrorCode(21002, "NAME_NOT_RESOLVED", "The name of a host is not resolved")
CLOSED = ErrorCode(21003, "CONNECTION_CLOSED", "The connection was closed while it was used")
TIMED_OUT = ErrorCode(21004, "TIMED_OUT", "No answer came in time")
BUSY = ErrorCode(21005, "RESOURCE_BUSY", "A resource of this machine is in use, or used up for the moment")
NOT_TRUSTED = ErrorCode(41001, "CERTIFICATE_NOT_TRUSTED", "One side does not trust the other one's certificate")
"""The catalogues of libraries that speak TLS have it too."""

NOT_TRUSTED_PATTERN = "CERTIFICATE_VERIFY_FAILED|_ALERT_(UNKNOWN_CA|BAD_CERTIFICATE|(UNSUPPORTED_)?CERTIFICATE)"
"""What OpenSSL writes if the certificate of the server, or of the client, is refused."""

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
        # smtplib raises it as well if nobody has connected: waiting does not cure that.
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
