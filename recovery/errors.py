"""All errors that this library raises on purpose.

    RecoveryError
    ├── SettingsError            a setting is missing, unknown or has a wrong value
    ├── ServerError              a server that we need
    │   ├── ServerUnavailable    does not answer
    │   │   └── PrimaryUnavailable   members of a replica set answer, but none of them is the primary
    │   ├── ServerRefused        answers, but denies access
    │   │   └── CertificateRefused   the TLS certificate of one side is not accepted by the other
    │   ├── ServerTooOld         runs a version that is not supported
    │   ├── ServerSharded        is a sharded MongoDB cluster, which is not supported
    │   ├── ServerUnfit          is not the kind of server that its address says, or runs in an unsupported mode
    │   ├── OtherVersion         workers or collections have another version of this library
    │   ├── StoreError           a MongoDB operation failed
    │   │   ├── StoreUnavailable     MongoDB is unreachable, has no primary, or is busy: retry (is a ServerUnavailable)
    │   │   │   └── StoreTimeout     MongoDB, or a majority of its members, did not answer in time
    │   │   └── StoreRefused         MongoDB refuses the operation every time
    │   │       ├── StoreDenied      its user has no permission (is a ServerRefused)
    │   │       ├── RecordInvalid    the collection's validator rejects the record
    │   │       ├── RecordTooLarge   the record would exceed 16 MB
    │   │       ├── IndexMissing     a required index is missing
    │   │       └── IndexConflict    an index has another definition or name than expected
    │   ├── BrokerError          a Redis operation, or Celery's remote control, failed
    │   ├── PortTaken            a port to listen on is in use
    │   ├── DataDirectoryError   a data directory is not ours, or has another version
    │   └── SparkUnavailable     Spark, or the Java that it needs, is missing, too old or does not start
    ├── InputError               the caller's input is invalid; nothing was changed
    │   ├── UnknownActor
    │   ├── UnknownProcessType
    │   ├── ProcessNotFound
    │   ├── CustomIdTaken        a process with this custom id was started with other arguments
    │   ├── StartRefused         an operator must first allow starts of this process type, or of this key of it
    │   ├── NotEncodable         JSON can't represent the value unchanged
    │   ├── TooLarge             a record would exceed MongoDB's limit of 16 MB
    │   ├── NotInActor           called outside a running actor
    │   └── WorkflowError        a WfFormat file can't be run
    ├── DamagedRecord            another program wrote a record that can't be read
    ├── SweepFailed              a sweep was interrupted; its repairs until then remain
    ├── ClaimLost                this attempt no longer holds its task and must stop
    ├── ProcessBroken            the process ended without a result
    └── ResultTimeout            the process did not end within the given time

Every call that uses a server may raise StoreError or BrokerError, with the driver's own error as `__cause__`. Their
text names the kind of the driver's error, and contains no document. `boundary` translates a driver's errors at each
public method of the classes that use a driver.

A message says what is wrong, which object, and what to do. Stored or given texts in a message are made printable,
because a traceback may go to a terminal.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any, TypeVar

from recovery.wording import printable_lines


class RecoveryError(Exception):
    """Base class of all errors of this library. Non-printable characters in its text are escaped."""

    def __init__(self, *texts: object) -> None:
        super().__init__(*map(printable_lines, texts))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the error by its state instead of its constructor's arguments, which need not be its text.

        An error may be raised in one process and caught in another.
        """
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(cls: type[RecoveryError], args: tuple[Any, ...], state: dict[str, Any]) -> RecoveryError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


class SettingsError(RecoveryError):
    """A setting is missing, unknown or has a wrong value."""


class ServerError(RecoveryError):
    """A problem with a server that this library needs."""


class ServerUnavailable(ServerError):
    """A server does not answer."""


class PrimaryUnavailable(ServerUnavailable):
    """Members of MongoDB's replica set answer, but none of them is the primary.

    An election may be under way, no majority may be connected, or the primary is unreachable from this machine.
    """


class ServerRefused(ServerError):
    """A server answers, but denies access."""


class CertificateRefused(ServerRefused):
    """The TLS certificate of the server or of this client is not accepted by the other side."""


class ServerTooOld(ServerError):
    """A server runs a version that is not supported."""


class ServerSharded(ServerError):
    """MongoDB is a sharded cluster. Only a single replica set gives the guarantees that are needed here."""


class ServerUnfit(ServerError):
    """A server is not the kind of server that its address says, or runs in an unsupported mode."""


class OtherVersion(ServerError):
    """Workers or collections have another version of this library, and the request is not possible across versions."""


class StoreError(ServerError):
    """A MongoDB operation failed; `__cause__` is the driver's error."""


class StoreUnavailable(StoreError, ServerUnavailable):
    """MongoDB is unreachable, has no primary, or is too busy. A retry may succeed.

    A write that raises this error may have been done nevertheless.
    """


class StoreTimeout(StoreUnavailable):
    """MongoDB, or a majority of its members, did not answer in time."""


class StoreRefused(StoreError):
    """MongoDB refuses the operation every time: it is invalid or not permitted."""


class StoreDenied(StoreRefused, ServerRefused):
    """The MongoDB user has no permission for the operation."""


class RecordInvalid(StoreRefused):
    """The validator of its collection rejects the record, because another of the record's fields is invalid."""


class RecordTooLarge(StoreRefused):
    """The record would exceed MongoDB's limit of 16 MB."""


class IndexMissing(StoreRefused):
    """A query needs an index that does not exist: somebody dropped it."""


class IndexConflict(StoreRefused):
    """An index exists with another definition, or under another name, than expected."""


class BrokerError(ServerError):
    """A Redis operation, or one of Celery's remote control, failed; `__cause__` is the driver's error."""


class PortTaken(ServerError):
    """A port to listen on is in use."""


class DataDirectoryError(ServerError):
    """A data directory is not ours, or another version wrote it."""


class SparkUnavailable(ServerError):
    """Spark, or the Java that it needs, is missing, too old or does not start."""


class InputError(RecoveryError):
    """The caller's input is invalid; nothing was changed."""


class UnknownActor(InputError):
    """No actor of this name is registered with the app."""


class UnknownProcessType(InputError):
    """No process of this type is registered with the app."""


class ProcessNotFound(InputError):
    """No process has this id."""


class CustomIdTaken(InputError):
    """A process of this type with this custom id was started with other arguments. `process_id` is that process."""

    def __init__(self, message: str, process_id: str) -> None:
        super().__init__(message)
        self.process_id = process_id


class StartRefused(InputError):
    """No process of this type, or of this key of it, may be started.

    `reason` is FAILED_ADMIN if a marker forbids it, and DISABLED if an operator has disabled the type. With
    FAILED_ADMIN, `marker` is the marker's name and `code` its error code.
    """

    def __init__(
        self, message: str, process_type: str, reason: str, marker: str | None = None, code: int | None = None
    ) -> None:
        super().__init__(message)
        self.process_type, self.reason, self.marker, self.code = process_type, reason, marker, code


class NotEncodable(InputError):
    """JSON can't represent the value unchanged."""


class TooLarge(InputError):
    """A record would exceed MongoDB's limit of 16 MB."""


class NotInActor(InputError):
    """The call is only allowed in a running actor."""


class WorkflowError(InputError):
    """A WfFormat file that can't be run."""


class DamagedRecord(RecoveryError):
    """A record can't be read, because another program wrote it past the validators.

    `record` is the record's id, which need not be a text. `kind` names the type of record that it should be, and
    `fields` are the unreadable fields of the document. Both are empty if they are unknown.
    """

    def __init__(self, record: Any, message: str, fields: tuple[str, ...] = (), kind: str = "") -> None:
        super().__init__(message)
        self.record, self.fields, self.kind = record, fields, kind


class SweepFailed(RecoveryError):
    """A sweep was interrupted. Its repairs until then remain. Start it again."""


class ClaimLost(RecoveryError):
    """This attempt no longer holds its task: another attempt claimed it, or it is decided. The attempt must stop."""


class ProcessBroken(RecoveryError):
    """The process ended without a result: a task failed, or the process was aborted. `state` says which.

    `kind` and `message` are exactly as stored. The error's own text is made printable.
    """

    def __init__(self, process_id: str, task: str | None, kind: str, message: str, state: str = "broken") -> None:
        where = f", task {task}" if task else ""
        super().__init__(f"process {process_id}{where}: {kind}: {message}")
        self.process_id, self.task, self.kind, self.message = process_id, task, kind, message
        self.state = state


class ResultTimeout(RecoveryError):
    """The process did not end within the given time. It continues; ask for the result again later."""


C = TypeVar("C", bound=type)
Errors = tuple[type[Exception], ...]


def boundary(errors: Errors, ours: Callable[[Exception], Exception]) -> Callable[[C], C]:
    """Return a class decorator whose public methods raise our errors in place of a driver's.

    Callers then catch errors of this module, and import no driver. The driver's error is the `__cause__` of ours.
    Errors while a generator yields its results are translated too. The decorator covers only methods that the class
    itself defines: decorate each subclass, too.

    Args:
        errors: The driver's errors to translate.
        ours: Returns our error for a driver's error.
    """

    def decorate(cls: C) -> C:
        for name, method in list(vars(cls).items()):
            if inspect.isfunction(method) and not name.startswith("_"):
                setattr(cls, name, _translated(method, errors, ours))
        return cls

    return decorate


def _translated(method: Callable[..., Any], errors: Errors, ours: Callable[[Exception], Exception]) -> Any:
    def translated_results(results: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from results
        except errors as error:
            raise ours(error) from error

    @functools.wraps(method)
    def translated(*args: Any, **kwargs: Any) -> Any:
        try:
            result = method(*args, **kwargs)
        except errors as error:
            raise ours(error) from error
        return translated_results(result) if type(result) is GeneratorType else result

    return translated
