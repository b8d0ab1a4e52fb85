"""`sys.stdout` and `sys.stderr` of a worker: what is written to them is logged, and they are files to those who ask.

Celery's own stream has neither `fileno` nor `buffer` nor `encoding`, without which `subprocess.run(stdout=sys.stdout)`,
`faulthandler` and much else fail. What goes to `fileno()` goes past the log, to where the worker itself writes.
"""

from __future__ import annotations

import io
import logging
import sys
from typing import Any, TextIO

from celery.app.log import Logging
from celery.utils.log import LoggingProxy

from recovery.printable import LINES


class LoggedStream(LoggingProxy):  # type: ignore[misc]
    """A text stream that logs what is written to it, in the place of an `original`."""

    encoding, errors, newlines, line_buffering = "utf-8", "replace", None, True

    def __init__(self, logger: logging.Logger, loglevel: int | str | None, original: TextIO | None) -> None:
        super().__init__(logger, loglevel)
        self._original = original
        self.name = getattr(original, "name", None)
        self.buffer = _Bytes(self)
        self.logger = _WithLines(logger, LINES)

    def fileno(self) -> int:
        """Return the descriptor of the original. Raises io.UnsupportedOperation if there is none."""
        if self._original is None:
            raise io.UnsupportedOperation("fileno: this worker has no such stream")
        return self._original.fileno()

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class _WithLines(logging.LoggerAdapter[logging.Logger]):
    """Logs a text that was written at once, such as a part of a printed stack, with its line breaks."""


class _Bytes(io.RawIOBase):
    """The same stream for bytes."""

    def __init__(self, text: LoggedStream) -> None:
        self._text = text

    def write(self, data: Any, /) -> int:
        written = bytes(data)
        self._text.write(written.decode(LoggedStream.encoding, LoggedStream.errors))
        return len(written)

    def fileno(self) -> int:
        return self._text.fileno()

    def writable(self) -> bool:
        return True


class StreamLogging(Logging):  # type: ignore[misc]
    """Celery's logging, with these streams."""

    def redirect_stdouts_to_logger(
        self, logger: logging.Logger, loglevel: Any = None, stdout: bool = True, stderr: bool = True
    ) -> None:
        if stdout:
            sys.stdout = LoggedStream(logger, loglevel, sys.__stdout__)
        if stderr:
            sys.stderr = LoggedStream(logger, loglevel, sys.__stderr__)
