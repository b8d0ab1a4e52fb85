"""HTTP answers and errors, whichever library raises them: requests, httpx, urllib, urllib3, aiohttp, botocore.

The status counts first. Retriable codes begin at 24001. Codes from 44001 on are for requests that would fail again, or
for which a retry is unsafe.
"""

from __future__ import annotations

from recovery.retry.catalogue import Catalogue, Entry
from recovery.retry.catalogues.python import NOT_TRUSTED, NOT_TRUSTED_PATTERN
from recovery.retry.codes import ErrorCode
from recovery.retry.reasons import (
    HTTP_GATEWAY,
    HTTP_REQUEST_TIMEOUT,
    HTTP_SERVICE_UNAVAILABLE,
    HTTP_TOO_MANY_REQUESTS,
    NODE_NOT_AVAILABLE,
    SERVICE_RESPONSE_CODE_INDICATED,
    SOCKET_CLOSED_WHILE_IN_FLIGHT,
    SOCKET_NOT_AVAILABLE,
    TIMEOUT_IN_FLIGHT,
    UNKNOWN,
)
from recovery.retry.signs import RETRY_AFTER

TOO_MANY = ErrorCode(24001, "HTTP_429", "The server limits the rate of requests")
UNAVAILABLE = ErrorCode(24002, "HTTP_503", "The server can't take the request now")
NOT_BEGUN = ErrorCode(24003, "HTTP_408_OR_425", "The server did not start the request")
GATEWAY = ErrorCode(24004, "HTTP_502_OR_504", "A gateway got no good answer from the server behind it")
UNREACHABLE = ErrorCode(24005, "HTTP_UNREACHABLE", "The server can't be reached")
LOST = ErrorCode(24006, "HTTP_CONNECTION_LOST", "The connection was lost before the answer arrived")
TIMED_OUT = ErrorCode(24007, "HTTP_TIMED_OUT", "No answer arrived in time")
NO_SOCKET = ErrorCode(24008, "HTTP_NO_CONNECTION", "No connection was free in time")
RETRY_LATER = ErrorCode(24009, "HTTP_RETRY_AFTER", "The server refuses the request now, and says when to retry")
FAILED_FOR_NOW = ErrorCode(24010, "HTTP_5XX_RETRY_AFTER", "The server failed at the request, and says when to retry")
CLIENT_ERROR = ErrorCode(44001, "HTTP_4XX", "The server refuses this request every time")
SERVER_ERROR = ErrorCode(44002, "HTTP_5XX", "The server failed at the request, and nobody knows how far it came")

HTTP = Catalogue(
    "http",
    (
        Entry(TOO_MANY, HTTP_TOO_MANY_REQUESTS, statuses=frozenset({429})),
        Entry(UNAVAILABLE, HTTP_SERVICE_UNAVAILABLE, statuses=frozenset({503})),
        Entry(NOT_BEGUN, HTTP_REQUEST_TIMEOUT, statuses=frozenset({408, 425})),
        Entry(GATEWAY, HTTP_GATEWAY, statuses=frozenset({502, 504})),
        # Retry-After is like an error map: some servers use 403 to limit the rate, or 409 if they are busy. After a 5xx
        # the request may have been executed.
        Entry(
            RETRY_LATER,
            SERVICE_RESPONSE_CODE_INDICATED,
            statuses=frozenset(range(300, 500)),
            labels=frozenset({RETRY_AFTER}),
        ),
        Entry(FAILED_FOR_NOW, HTTP_GATEWAY, statuses=frozenset(range(500, 600)), labels=frozenset({RETRY_AFTER})),
        Entry(CLIENT_ERROR, UNKNOWN, statuses=frozenset(range(400, 500))),
        Entry(SERVER_ERROR, UNKNOWN, statuses=frozenset(range(500, 600))),
        # These classes are also used for unreachable servers and lost connections, so this entry must come first.
        Entry(
            NOT_TRUSTED,
            UNKNOWN,
            types=frozenset(
                {
                    "requests.exceptions.ConnectionError",
                    "httpx.NetworkError",
                    "urllib3.exceptions.MaxRetryError",
                    "urllib3.exceptions.SSLError",
                    "aiohttp.client_exceptions.ClientOSError",
                    "botocore.exceptions.SSLError",
                    "aiohttp.client_exceptions.ClientConnectorError",
                }
            ),
            pattern=NOT_TRUSTED_PATTERN,
        ),
        Entry(
            UNREACHABLE,
            NODE_NOT_AVAILABLE,
            types=frozenset(
                {
                    "requests.exceptions.ConnectTimeout",
                    "httpx.ConnectError",
                    "httpx.ConnectTimeout",
                    "urllib3.exceptions.NewConnectionError",
                    "urllib3.exceptions.ConnectTimeoutError",
                    "urllib3.exceptions.NameResolutionError",
                    "aiohttp.client_exceptions.ClientConnectorError",
                    "botocore.exceptions.EndpointConnectionError",
                    "botocore.exceptions.ConnectTimeoutError",
                    "botocore.exceptions.ProxyConnectionError",
                }
            ),
        ),
        Entry(NO_SOCKET, SOCKET_NOT_AVAILABLE, types=frozenset({"httpx.PoolTimeout"})),
        Entry(
            UNREACHABLE,
            NODE_NOT_AVAILABLE,
            types=frozenset({"requests.exceptions.ConnectionError", "urllib3.exceptions.MaxRetryError"}),
            pattern="NewConnectionError|NameResolutionError|Connection refused|ConnectTimeoutError",
        ),
        Entry(
            TIMED_OUT,
            TIMEOUT_IN_FLIGHT,
            types=frozenset(
                {
                    "requests.exceptions.Timeout",
                    "httpx.TimeoutException",
                    "urllib3.exceptions.TimeoutError",
                    "aiohttp.client_exceptions.ServerTimeoutError",
                    "botocore.exceptions.ReadTimeoutError",
                }
            ),
        ),
        Entry(
            LOST,
            SOCKET_CLOSED_WHILE_IN_FLIGHT,
            types=frozenset(
                {
                    "requests.exceptions.ConnectionError",
                    "requests.exceptions.ChunkedEncodingError",
                    "httpx.NetworkError",
                    "httpx.RemoteProtocolError",
                    "urllib3.exceptions.ProtocolError",
                    "aiohttp.client_exceptions.ClientConnectionError",
                    "aiohttp.client_exceptions.ClientPayloadError",
                    "botocore.exceptions.ConnectionError",
                    "botocore.exceptions.HTTPClientError",
                    "botocore.exceptions.IncompleteReadError",
                    "http.client.IncompleteRead",
                    "http.client.RemoteDisconnected",
                }
            ),
        ),
    ),
)
