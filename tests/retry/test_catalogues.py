"""What errors mean: classes with their superclasses and causes, codes, labels, words, statuses."""

from __future__ import annotations

import asyncio
import errno
import imaplib
import smtplib
import socket
import ssl
import urllib.error
from email.message import Message
from typing import Any

import pytest
import redis.exceptions as of_redis
from pymongo import errors as of_pymongo

from recovery.errors import InputError
from recovery.retry import GENERIC_ERROR, SHIPPED, Catalogue, Entry, ErrorClass, ErrorCode, classify, shipped
from recovery.retry.catalogue import MAX_MEMBERS, check_together
from recovery.retry.codes import class_of
from recovery.retry.reasons import KV_LOCKED, UNKNOWN
from recovery.retry.signs import TEXT_END, signs_of


class Answered(Exception):
    """As requests and httpx have it."""

    def __init__(self, status: int, **headers: str) -> None:
        super().__init__(f"{status}")
        self.response = type("Response", (), {"status_code": status, "headers": headers})()


def os_error(number: int) -> OSError:
    return OSError(number, "told")


def labelled(label: str) -> of_pymongo.PyMongoError:
    return of_pymongo.PyMongoError("told", error_labels=[label])


def of_botocore(name: str, said: str = "said", *bases: type[Exception], **fields: Any) -> Exception:
    """Return an error as botocore raises it; by their names such are known."""
    error = type(name, bases or (Exception,), {"__module__": "botocore.exceptions"})(said)
    vars(error).update(fields)
    assert isinstance(error, Exception)
    return error


LOCKED = ErrorCode(27001, "LOCKED", "locked")

KNOWN: list[tuple[BaseException, str]] = [
    (ConnectionRefusedError("no"), "NODE_NOT_AVAILABLE"),
    (socket.gaierror(-2, "Name or service not known"), "NODE_NOT_AVAILABLE"),
    (os_error(errno.EHOSTUNREACH), "NODE_NOT_AVAILABLE"),
    (ConnectionResetError("reset"), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    (BrokenPipeError("pipe"), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    (TimeoutError("late"), "TIMEOUT_IN_FLIGHT"),
    (ssl.SSLEOFError(8, "EOF occurred in violation of protocol"), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    (ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed"), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    (asyncio.IncompleteReadError(b"", 10), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    (smtplib.SMTPServerDisconnected("Connection unexpectedly closed"), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    (smtplib.SMTPServerDisconnected("please run connect() first"), "UNKNOWN"),
    (imaplib.IMAP4.abort("socket error: EOF"), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    (ssl.SSLError(1, "[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)"), "UNKNOWN"),
    (of_redis.ConnectionError("Error 1 connecting to h:1. [SSL: CERTIFICATE_VERIFY_FAILED] told"), "UNKNOWN"),
    (os_error(errno.EMFILE), "RESOURCE_BUSY"),
    (os_error(errno.ENOENT), "UNKNOWN"),
    (of_pymongo.ServerSelectionTimeoutError("no primary"), "NODE_NOT_AVAILABLE"),
    (of_pymongo.WaitQueueTimeoutError("full"), "SOCKET_NOT_AVAILABLE"),
    (of_pymongo.NotPrimaryError("not primary"), "NOT_PRIMARY"),
    (of_pymongo.AutoReconnect("closed"), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    (of_pymongo.NetworkTimeout("late"), "TIMEOUT_IN_FLIGHT"),
    (of_pymongo.OperationFailure("not primary", 10107), "NOT_PRIMARY"),
    (of_pymongo.OperationFailure("stepped down", 189), "STATE_CHANGED_IN_FLIGHT"),
    (of_pymongo.OperationFailure("shutting down", 11600), "STATE_CHANGED_IN_FLIGHT"),
    (of_pymongo.OperationFailure("conflict", 112), "WRITE_CONFLICT"),
    (of_pymongo.OperationFailure("disk", 14031), "SERVER_OVERLOADED"),
    (of_pymongo.OperationFailure("login", 18), "UNKNOWN"),
    (of_pymongo.WTimeoutError("wtimeout", 64), "TIMEOUT_IN_FLIGHT"),
    (of_pymongo.NotPrimaryError("refused", {"code": 10107}), "NOT_PRIMARY"),
    (of_pymongo.NotPrimaryError("in the middle", {"code": 11602}), "STATE_CHANGED_IN_FLIGHT"),
    (of_pymongo.NotPrimaryError("after it", {"writeConcernError": {"code": 11600}}), "STATE_CHANGED_IN_FLIGHT"),
    (of_pymongo.NotPrimaryError("after it", {"writeConcernError": {"code": 10107}}), "TIMEOUT_IN_FLIGHT"),
    (of_pymongo.WriteConcernError("after it", 10107), "TIMEOUT_IN_FLIGHT"),
    (labelled("RetryableWriteError"), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    (of_redis.BusyLoadingError("Redis is loading the dataset in memory"), "REDIS_LOADING"),
    (of_redis.ReadOnlyError("You can't write against a read only replica."), "REDIS_READ_ONLY"),
    (of_redis.ResponseError("MISCONF Redis is configured to save"), "REDIS_READ_ONLY"),
    (of_redis.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), "REDIS_OUT_OF_MEMORY"),
    (of_redis.ResponseError("BUSY Redis is busy running a script."), "REDIS_BUSY"),
    (of_redis.NoPermissionError("no"), "UNKNOWN"),
    (of_redis.TimeoutError("late"), "TIMEOUT_IN_FLIGHT"),
    (of_redis.ConnectionError("Error 111 connecting to 127.0.0.1:1. Connection refused."), "NODE_NOT_AVAILABLE"),
    (of_redis.ConnectionError("Connection closed by server."), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    (of_redis.ResponseError("WRONGTYPE Operation against a key"), "UNKNOWN"),
    (Answered(429), "HTTP_TOO_MANY_REQUESTS"),
    (Answered(503), "HTTP_SERVICE_UNAVAILABLE"),
    (Answered(502), "HTTP_GATEWAY"),
    (Answered(404), "UNKNOWN"),
    (urllib.error.HTTPError("http://h/", 503, "no", Message(), None), "HTTP_SERVICE_UNAVAILABLE"),
    (of_botocore("EndpointConnectionError", "Could not connect to the endpoint URL"), "NODE_NOT_AVAILABLE"),
    (of_botocore("ReadTimeoutError", "Read timeout on endpoint URL", OSError), "TIMEOUT_IN_FLIGHT"),
    (of_botocore("HTTPClientError", "An HTTP Client raised an unhandled exception"), "SOCKET_CLOSED_WHILE_IN_FLIGHT"),
    (of_botocore("SSLError", "SSL validation failed: certificate verify failed", OSError), "UNKNOWN"),
    (of_botocore("ClientError", response={"ResponseMetadata": {"HTTPStatusCode": 503}}), "HTTP_SERVICE_UNAVAILABLE"),
    (of_botocore("ClientError", response={"ResponseMetadata": "?"}), "UNKNOWN"),
    (ValueError("no"), "UNKNOWN"),
    (RuntimeError("FAILED: Error 20020: Source of replication is not set"), "UNKNOWN"),
    (RuntimeError("REPL_RANGER_NOT_REACHABLE: http://ranger"), "SERVICE_NOT_AVAILABLE"),
]


@pytest.mark.parametrize(("error", "reason"), KNOWN, ids=lambda one: repr(one)[:60])
def test_what_is_known(error: BaseException, reason: str) -> None:
    found = classify(error, SHIPPED)
    assert found.reason.name == reason
    assert found.is_retriable == (reason != "UNKNOWN")


def test_a_bulk_that_a_majority_did_not_confirm() -> None:
    found = classify(of_pymongo.BulkWriteError({"writeErrors": [], "writeConcernErrors": [{"code": 64}]}), SHIPPED)
    assert found.code.name == "MONGODB_NOT_CONFIRMED"


def test_what_nobody_knows_is_the_generic_error() -> None:
    found = classify(ZeroDivisionError("division by zero"), SHIPPED)
    assert (found.code, found.reason, found.catalogue) == (GENERIC_ERROR, UNKNOWN, None)


def test_a_cause_is_known_where_the_error_is_not() -> None:
    try:
        try:
            raise ConnectionRefusedError("no")
        except ConnectionRefusedError as error:
            raise RuntimeError("could not ship the order") from error
    except RuntimeError as error:
        assert classify(error, SHIPPED).code.name == "CONNECTION_REFUSED"
    try:
        try:
            raise ConnectionRefusedError("no")
        except ConnectionRefusedError:
            raise RuntimeError("another matter") from None
    except RuntimeError as error:
        assert classify(error, SHIPPED).code == GENERIC_ERROR, "its cause was said to be none"


def test_an_error_raised_while_another_one_was_handled_is_judged_by_itself() -> None:
    try:
        try:
            raise ConnectionRefusedError("no")
        except ConnectionRefusedError:
            raise KeyError("while the refusal was logged")  # noqa: B904 - without a cause of its own
    except KeyError as error:
        assert classify(error, SHIPPED).code == GENERIC_ERROR


def test_an_error_is_known_by_the_error_that_it_was_made_of() -> None:
    assert classify(urllib.error.URLError(ConnectionRefusedError("no")), SHIPPED).code.name == "CONNECTION_REFUSED"
    assert classify(urllib.error.URLError("no host given"), SHIPPED).code == GENERIC_ERROR


RESET, REFUSED, BUG = ConnectionResetError("reset"), ConnectionRefusedError("no"), KeyError("bug")


def because_of(cause: BaseException) -> RuntimeError:
    error = RuntimeError("could not ship the orders")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ExceptionGroup("all", [REFUSED, REFUSED]), "CONNECTION_REFUSED"),
        (ExceptionGroup("all", [REFUSED, BUG]), "GENERIC_ERROR"),
        (ExceptionGroup("all", [REFUSED, RESET]), "CONNECTION_CLOSED"),
        (ExceptionGroup("all", [RESET, REFUSED]), "CONNECTION_CLOSED"),
        (ExceptionGroup("all", [REFUSED, ExceptionGroup("of these", [RESET])]), "CONNECTION_CLOSED"),
        (ExceptionGroup("all", [REFUSED, ExceptionGroup("of these", [RESET, BUG])]), "GENERIC_ERROR"),
        (ExceptionGroup("all", [because_of(REFUSED), because_of(REFUSED)]), "CONNECTION_REFUSED"),
        (because_of(ExceptionGroup("all", [REFUSED])), "CONNECTION_REFUSED"),
        (ExceptionGroup("all", [because_of(ExceptionGroup("behind", [REFUSED]))]), "CONNECTION_REFUSED"),
        (BaseExceptionGroup("all", [REFUSED, KeyboardInterrupt()]), "GENERIC_ERROR"),
    ],
)  # fmt: skip
def test_a_group_is_as_serious_as_the_most_serious_of_its_errors(error: BaseException, code: str) -> None:
    assert classify(error, SHIPPED).code.name == code


def test_a_group_waits_for_the_server_that_asks_for_the_longest_time() -> None:
    asked = [Answered(503, **{"Retry-After": seconds}) for seconds in ("5", "120", "7")]
    assert classify(ExceptionGroup("all", asked), SHIPPED).retry_after == 120


def test_a_group_that_is_the_cause_of_its_own_error_ends() -> None:
    member = RuntimeError("a")
    group = ExceptionGroup("all", [member] * 5)
    member.__cause__ = group
    assert classify(group, SHIPPED).code == GENERIC_ERROR


def test_of_a_huge_group_a_part_is_examined() -> None:
    errors = [RuntimeError(f"{number}") for number in range(MAX_MEMBERS + 1)]
    asked = [0]

    class Counted(Exception):
        def __str__(self) -> str:
            asked[0] += 1
            return "counted"

    classify(ExceptionGroup("all", [Counted() for _ in errors]), SHIPPED)
    assert asked == [MAX_MEMBERS]


def test_of_a_long_text_both_ends_are_searched() -> None:
    catalogues = [Catalogue("shop", (Entry(LOCKED, KV_LOCKED, pattern="(?s)^begin.*end$"),))]
    assert classify(RuntimeError("begin" + "x" * 100_000 + "end"), catalogues).code == LOCKED
    assert len(signs_of(RuntimeError("x" * 100_000)).text) == 2 * TEXT_END + 1
    assert signs_of(RuntimeError("x" * 2 * TEXT_END)).text == "x" * 2 * TEXT_END


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = RuntimeError("a"), RuntimeError("b")
    first.__cause__, second.__cause__ = second, first
    assert classify(first, SHIPPED).code == GENERIC_ERROR


def test_retry_after() -> None:
    assert classify(Answered(503, **{"Retry-After": "120"}), SHIPPED).retry_after == 120
    assert classify(Answered(503, **{"Retry-After": "soon"}), SHIPPED).retry_after is None


def test_a_class_whose_properties_raise() -> None:
    class Odd(Exception):
        @property
        def response(self) -> Any:
            raise RuntimeError("mine")

        def __str__(self) -> str:
            raise RuntimeError("mine, too")

    assert classify(Odd(), SHIPPED).code == GENERIC_ERROR
    assert signs_of(Odd()).text == ""


def test_ranges() -> None:
    assert [class_of(n) for n in (10000, 19999)] == [ErrorClass.SEMANTIC] * 2
    assert [class_of(n) for n in (20000, 39999)] == [ErrorClass.RETRIABLE] * 2
    assert [class_of(n) for n in (40000, 49999)] == [ErrorClass.NOT_RETRIABLE] * 2
    for wrong in (9999, 50000, -1):
        with pytest.raises(InputError, match="must be from 10000 to 49999"):
            ErrorCode(wrong, "X", "")


def test_the_shipped_ones_do_not_overlap() -> None:
    check_together(SHIPPED)


def test_ones_own() -> None:
    known = shipped()
    known.add(Catalogue("shop", (Entry(LOCKED, KV_LOCKED, types=frozenset({"builtins.PermissionError"})),)))
    assert classify(PermissionError(errno.EAGAIN, "x"), known.all).code == LOCKED, "the nearer class counts"
    with pytest.raises(InputError, match="two catalogues are named 'shop'"):
        known.add(Catalogue("shop", ()))
    other = ErrorCode(27001, "OTHER", "")
    with pytest.raises(InputError, match="catalogues shop and late overlap: 27001 is LOCKED in the one and OTHER"):
        known.add(Catalogue("late", (Entry(other, KV_LOCKED, pattern="x"),)))


def test_a_catalogue_that_is_a_mistake() -> None:
    with pytest.raises(InputError, match="has no sign by which it is recognized"):
        Catalogue("mine", (Entry(LOCKED, KV_LOCKED),))


class Unfit:
    def __bool__(self) -> bool:
        raise RuntimeError("no")


class Proxy(Exception):
    """It gives what it does not have from somewhere else."""

    def __init__(self, answer: object) -> None:
        super().__init__("wrong")
        self.answer = answer

    def __getattr__(self, _name: str) -> object:
        return self.answer


@pytest.mark.parametrize(
    "answer", [5, Unfit(), lambda *_: None, {"writeErrors": None}, {"writeErrors": 3}, {"code": []}]
)
def test_an_error_whose_attributes_are_something_else_is_read_all_the_same(answer: object) -> None:
    assert classify(Proxy(answer), SHIPPED).code is GENERIC_ERROR
