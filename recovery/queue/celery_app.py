"""Celery applications that take their settings from Recovery Workers, and from nowhere else.

By itself Celery prefers what the environment says to what its application says: `CELERY_BROKER_URL` and its like name
another broker, `CELERY_LOADER` and `CELERY_CONFIG_MODULE` name code that sets anything. Such variables are often meant
for another program's Celery, which actors may use as well. So they stay in the environment, and are ignored here.
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
"""Prefixes of environment variables that Celery's command takes for options of `celery worker` and `celery beat`."""


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
        return self.conf.get("broker_url")  # as an attribute it would be the environment's


def ignored_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Return the names of the environment variables that are ignored and would mean something to Celery."""
    return sorted(
        name for name, value in environment.items() if value and (name in IGNORED or name.startswith(IGNORED_OPTIONS))
    )
