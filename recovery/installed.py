"""What is installed here: the version of this library, and files that are imported in the place of a module that we
need.

Such files have the module's name and lie in the folder of an application.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DISTRIBUTION = "recovery-workers"
UNKNOWN = "unknown"
OURS = frozenset({
    "amqp", "billiard", "bson", "celery", "click", "click_didyoumean", "click_plugins", "click_repl", "cronsim",
    "dateutil", "dns", "gridfs", "kombu", "lark", "packaging", "prometheus_client", "prompt_toolkit",
    "pydantic", "pydantic_core", "pymongo", "redis", "rich", "typer", "typing_extensions",
    "typing_inspection", "tzdata", "tzlocal", "uuid_utils", "vine",
})  # fmt: skip
"""Modules of the packages that this library and Celery import."""


@lru_cache(maxsize=1)
def library_version() -> str:
    """Return the version, as in `0.1.0`; `unknown` if the library runs from a folder that nobody installed."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return UNKNOWN


def shadowing(folder: Path) -> list[Path]:
    """Return the files and packages in a folder that have the name of a module of Python's or of one that we need."""
    names = (sys.stdlib_module_names - set(sys.builtin_module_names)) | OURS
    try:
        there = sorted(folder.iterdir())
    except OSError:
        return []
    return [
        path
        for path in there
        if path.stem in names
        and ((path.suffix == ".py" and path.is_file()) or (path.name in names and (path / "__init__.py").is_file()))
    ]


def advice(folder: Path) -> str:
    """Return a sentence that names these files and says what to do; nothing if there are none."""
    if not (found := shadowing(folder)):
        return ""
    names = ", ".join(path.name for path in found)
    return f"{folder} has {names}, imported in the place of Python modules of the same name: rename what is yours"
