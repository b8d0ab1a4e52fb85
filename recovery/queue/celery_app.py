"""Celery applications that take their settings only from Recovery Workers.

Celery itself prefers environment variables to the settings of its application: `CELERY_BROKER_URL` and similar ones
name another broker, `CELERY_LOADER` and `CELERY_CONFIG_MODULE` name code that may set anything. Such variables are
often meant for the Celery of another program, which actors may use as well. So they stay in the environment, and these
applications ignore them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from celery import Celery
from celery.loaders.app import AppLoader

IGNORED = (
    "CELERY_BROKER_URL",
    "CELERY_BROKER_READ_URL",
    "CELERY_BROKER_WRITE_URL",
    "CELERY_RESULT_BACKEND",
    "CELERY_CONFIG_MODULE",
    "CELERY_LOADER",
)
"""Environment variables that Celery prefers to the settings of an application."""
IGNORED_OPTIONS = ("CELERY_WORKER_", "CELERY_BEAT_")
"""Prefixes of environment variables that Celery's command reads as options of `celery worker` and `celery beat`."""


class OwnLoader(AppLoader):  # type: ignore[misc]
    """Celery's loader without a configuration module."""

    def read_configuration(self, env: str = "") -> None:
        """Read nothing: the application's settings are complete."""


class OwnCelery(Celery):  # type: ignore[misc]
    """A Celery application that connects to its own `broker_url`, whatever the environment says."""

    backend_cls = "disabled"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, loader=OwnLoader, **options)

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        """Return a connection to take messages from."""
        return super().connection_for_read(url or self._own_url(), **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        """Return a connection to send messages to."""
        return super().connection_for_write(url or self._own_url(), **options)

    def connection(self, hostname: str | None = None, **options: Any) -> Any:
        """Return a connection for commands, such as remote control."""
        return super().connection(hostname or self._own_url(), **options)

    def _own_url(self) -> Any:
        return self.conf.get("broker_url")  # the attribute would return the environment's value


def ignored_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the sorted names of set environment variables that Celery would read and our applications ignore."""
    return sorted(
        name for name, value in environment.items() if value and (name in IGNORED or name.startswith(IGNORED_OPTIONS))
    )
