"""Where settings come from: environment variables `RECOVERY_*`, and the TOML file that RECOVERY_CONFIG names. And how a
wrong one is reported: by its name, where it came from, and what it should be."""

from __future__ import annotations

import codecs
import difflib
import math
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recovery import addresses
from recovery.errors import SettingsError
from recovery.limits import LONGEST
from recovery.setting_forms import ADDRESSES, DURATION, DeclaredSetting
from recovery.wording import show_duration, unseen

# Wrong values that are shown: what may well have been meant, and hardly is a key or a password.
_A_NUMBER = re.compile(r"[-+]?[0-9.]{1,12}([eE][-+]?[0-9]{1,3})?[A-Za-z]{0,3}|[-+]?[A-Za-z]{1,5}")
_A_NAME = re.compile(r"[A-Za-z_. -]{1,16}|[0-9.]{1,6}")

PREFIX = "RECOVERY_"
CONFIG = "RECOVERY_CONFIG"

MAX_FILE_BYTES = 1_000_000
"""Of a TOML file: all settings with a comment each are some 10 kB. It bounds how deep a file can be nested, too."""


def variables() -> dict[str, str]:
    """Return our environment variables by field name. Small letters count too."""
    found = {name.upper(): text for name, text in os.environ.items() if name.upper().startswith(PREFIX)}
    return {name.removeprefix(PREFIX).lower(): text for name, text in found.items() if name != CONFIG}


def file_values() -> dict[str, Any]:
    """Return what the TOML file has. A file that does not exist is an error."""
    path = os.environ.get(CONFIG) or ""
    try:
        if not path:
            return {}
        _check_file(path)
        _check_encoding(path)
        with Path(path).open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"{CONFIG}={shown_path(path)}: can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{CONFIG}={shown_path(path)}: not TOML: {error}") from None
    except (RecursionError, ValueError) as error:  # a number of thousands of digits among them
        raise SettingsError(
            f"{CONFIG}={shown_path(path)}: can't be read: {error}; settings are a name and a value each"
        ) from None


def _check_file(path: str) -> None:
    found = Path(path).stat() if Path(path).exists() else None
    if found is None or not stat.S_ISREG(found.st_mode):
        raise SettingsError(f"{CONFIG}={shown_path(path)}: there is no such file{unseen(path)}")
    if found.st_size > MAX_FILE_BYTES:
        raise SettingsError(
            f"{CONFIG}={shown_path(path)}: is larger than {MAX_FILE_BYTES:,} bytes; is it a file of settings?"
        )


def _check_encoding(path: str) -> None:
    """Raise SettingsError for a file that begins with a byte order mark, which TOML has none of."""
    with Path(path).open("rb") as file:
        begins = file.read(len(codecs.BOM_UTF8))
    for mark, encoding in (
        (codecs.BOM_UTF8, "UTF-8"),
        (codecs.BOM_UTF16_LE, "UTF-16"),
        (codecs.BOM_UTF16_BE, "UTF-16"),
    ):
        if begins.startswith(mark):
            raise SettingsError(
                f"{CONFIG}={shown_path(path)}: begins with a byte order mark of {encoding}: save it as UTF-8 "
                "without one"
            )


def shown_path(path: str) -> str:
    """Return what should be the path of a file, as it may be shown."""
    if re.search("[@?#%]|://", path) or not re.match(r"[./~]|.*\.toml$", path) or len(path) > 1000:
        return f"a text of {len(path):,} characters"
    return path


def describe(item: Mapping[str, Any], given: Mapping[str, Any], fields: Mapping[str, DeclaredSetting]) -> str:
    """Return a line for one of pydantic-core's errors: which setting is wrong, where it came from, what it should be.

    Args:
        item: The error.
        given: The settings that the code gave.
        fields: All settings, by name.
    """
    if not item["loc"]:
        return f"settings: {_message(item)}"
    name = str(item["loc"][0])
    shown, origin = _origin(name, given)
    if item["type"] == "extra_forbidden":
        return f"unknown setting {_named(shown)}{origin}: {_suggestion(name, shown, fields)}"
    return (
        f"setting {shown}{origin}: {_message(item)}; got {_given(name, item['input'], fields)}{unseen(item['input'])}"
    )


def _given(name: str, value: Any, fields: Mapping[str, DeclaredSetting]) -> str:
    """Return a wrong value as it may be shown. What looks like an address may be one in the wrong place."""
    if name == "message_key":
        return "a value that is not shown"
    if not isinstance(value, str | int | float | Path | None):
        return f"a {type(value).__name__}"  # a table of TOML, which may hold anything
    if fields[name].form in ADDRESSES or (isinstance(value, str) and re.search("[@/:%?#]", value)):
        return addresses.public(value)
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number of more digits"
    if fields[name].form is DURATION and isinstance(value, float) and math.isfinite(value):
        return show_duration(value)  # what was written was read before its bounds were looked at
    shown = str.__str__(value) if isinstance(value, str) else str(value)
    is_text = isinstance(fields[name].default, str | Path) or name == "app"
    if (_A_NAME if is_text else _A_NUMBER).fullmatch(shown) or shown == "":
        return repr(shown) if isinstance(value, str) else shown
    return f"a text of {len(shown):,} characters"  # a key or a password in the wrong place, for all that is known


def _named(name: str) -> str:
    """Return the name of a setting that does not exist, as it may be shown: it may be a value in the wrong place."""
    return name if re.fullmatch("[A-Za-z_][A-Za-z0-9_-]{0,39}", name) else f"of a name of {len(name):,} characters"


def _origin(name: str, given: Mapping[str, Any]) -> tuple[str, str]:
    """Return a setting's name as its author wrote it, and where that was."""
    if name in given:
        return name, ""
    if name in variables():
        return f"{PREFIX}{name.upper()}", " (environment variable)"
    return name, f" (in {shown_path(os.environ.get(CONFIG, ''))})"


def _suggestion(name: str, shown: str, fields: Mapping[str, DeclaredSetting]) -> str:
    near = difflib.get_close_matches(name.lower(), fields, n=1, cutoff=0.5)
    if not near:
        return "docs/settings.md lists all settings"
    return f"did you mean {PREFIX + near[0].upper() if shown.startswith(PREFIX) else near[0]}?"


def _message(item: Mapping[str, Any]) -> str:
    if item["type"] == "less_than_equal" and item["ctx"]["le"] == LONGEST:
        return f"must be at most {LONGEST:,} seconds (10 years)"
    return str(item["msg"]).removeprefix("Value error, ")
