"""The name of an application: what its code gives, or the top-level package that makes it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from recovery.errors import InputError
from recovery.records import given

WANTED = "letters, digits, '_', '.' and '-', at most 50, a letter or '_' first"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,49}")
_OTHER = re.compile(r"[^A-Za-z0-9_.-]")


def checked_name(name: Any) -> str:
    """Return a name that an application can have. Raises InputError."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InputError(f"Recovery(name={given.shown(name)}): the name of an application has {WANTED}, as in shop")
    return given.exact(name)


def module_of_maker(made: object) -> str:
    """Return the name of the module that makes an object; call it in the object's `__init__`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_locals.get("self") is made:  # constructors of classes derived from it
        frame = frame.f_back
    name = str(frame.f_globals.get("__name__", "")) if frame is not None else ""
    return _name_of_program() if name == "__main__" else name


def name_of_package(module: str) -> str:
    """Return the name that an application has by default: the top-level package of the module that makes it."""
    top = _OTHER.sub("_", module.partition(".")[0])[:50]
    return top if _NAME.fullmatch(top) else "application"


def _name_of_program() -> str:
    """The module that Python was started with, by its name or its file."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    return str(spec.name) if spec is not None else Path(str(getattr(main, "__file__", ""))).stem
