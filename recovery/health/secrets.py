"""Check of the files of this machine that hold a password or a key."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from recovery.certificates import of_mongodb, of_redis
from recovery.engine import Resources
from recovery.health.model import Cause, Check, join_names, ok, warning
from recovery.setting_sources import CONFIG
from recovery.settings import Settings

_SECRET = re.compile(rb"message_key|Password=|://[^\s\"'/]*@")
"""In a file of settings: what makes it one that is not for everybody."""


def secrets(resources: Resources) -> Check:
    """None of them is for everybody to read."""
    found = list(_files(resources.settings))
    if not found:
        return ok("secrets", "no file of this machine that is named holds a password or a key")
    shown = [path for path in found if _is_for_all(path)]
    if not shown:
        return ok("secrets", f"not for everybody to read: {join_names(found)}")
    return warning(
        "secrets",
        Cause.SECRETS_READABLE,
        f"everybody on this machine may read {join_names(shown)}",
        "make it readable for the user that runs this alone: chmod 600. Who has read it has the passwords and keys",
    )


def _files(settings: Settings) -> Iterator[str]:
    if config := os.environ.get(CONFIG):
        with suppress(OSError):
            if _SECRET.search(Path(config).read_bytes()):
                yield config
    keys = (tls.key for tls in (of_mongodb(settings.mongo_uri), of_redis(settings.broker_url)) if tls is not None)
    yield from sorted({key for key in keys if key is not None})


def _is_for_all(path: str) -> bool:
    with suppress(OSError):
        return bool(Path(path).stat().st_mode & stat.S_IROTH)
    return False
