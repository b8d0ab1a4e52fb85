"""Installed packages: this library's version, and files that shadow a module which this library imports.

A shadowing file has the name of such a module and is in the folder of an application.
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
"""Top-level modules of the packages that this library and Celery import."""


@lru_cache(maxsize=1)
def library_version() -> str:
    """Return the version, such as `0.1.0`; `unknown` if the library is not installed as a distribution."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return UNKNOWN


def shadowing(folder: Path) -> list[Path]:
    """Return the modules and packages in a folder that shadow a module of Python or of our dependencies."""
    names = (sys.stdlib_module_names - set(sys.builtin_module_names)) | OURS
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [
        path
        for path in entries
        if path.stem in names
        and ((path.suffix == ".py" and path.is_file()) or (path.name in names and (path / "__init__.py").is_file()))
    ]


def advice(folder: Path) -> str:
    """Return a sentence that names the shadowing files of a folder and how to fix them; an empty text if there are
    none."""
    if not (paths := shadowing(folder)):
        return ""
    names = ", ".join(path.name for path in paths)
    return f"{folder} has {names}, imported in the place of Python modules of the same name: rename what is yours"
