"""Sources of settings: environment variables `RECOVERY_*`, and the TOML file that RECOVERY_CONFIG names.

The error for a wrong setting says its name, its source, and which values are valid.
"""

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

# Patterns of wrong values that are shown in errors: likely values, which are hardly keys or passwords.
_A_NUMBER = re.compile(r"[-+]?[0-9.]{1,12}([eE][-+]?[0-9]{1,3})?[A-Za-z]{0,3}|[-+]?[A-Za-z]{1,5}")
_A_NAME = re.compile(r"[A-Za-z_. -]{1,16}|[0-9.]{1,6}")

PREFIX = "RECOVERY_"
CONFIG = "RECOVERY_CONFIG"

MAX_FILE_BYTES = 1_000_000
"""Maximum size of the TOML file in bytes. All settings with a comment each take about 10 kB.

The limit also bounds how deeply a file can be nested.
"""


def variables() -> dict[str, str]:
    """Return the values of the environment variables RECOVERY_*, by setting name. Names may be in lower case."""
    by_variable = {name.upper(): text for name, text in os.environ.items() if name.upper().startswith(PREFIX)}
    return {name.removeprefix(PREFIX).lower(): text for name, text in by_variable.items() if name != CONFIG}


def file_values() -> dict[str, Any]:
    """Return the settings in the TOML file; none if RECOVERY_CONFIG is unset.

    Raises:
        SettingsError: The file does not exist, can't be read, or is not TOML.
    """
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
    except (RecursionError, ValueError) as error:  # for example a number with thousands of digits
        raise SettingsError(
            f"{CONFIG}={shown_path(path)}: can't be read: {error}; each setting must be a name and a value"
        ) from None


def _check_file(path: str) -> None:
    status = Path(path).stat() if Path(path).exists() else None
    if status is None or not stat.S_ISREG(status.st_mode):
        raise SettingsError(f"{CONFIG}={shown_path(path)}: there is no such file{unseen(path)}")
    if status.st_size > MAX_FILE_BYTES:
        raise SettingsError(
            f"{CONFIG}={shown_path(path)}: is larger than {MAX_FILE_BYTES:,} bytes; is it a file of settings?"
        )


def _check_encoding(path: str) -> None:
    """Raise SettingsError if a file begins with a byte order mark, which TOML does not allow."""
    with Path(path).open("rb") as file:
        first_bytes = file.read(len(codecs.BOM_UTF8))
    for mark, encoding in (
        (codecs.BOM_UTF8, "UTF-8"),
        (codecs.BOM_UTF16_LE, "UTF-16"),
        (codecs.BOM_UTF16_BE, "UTF-16"),
    ):
        if first_bytes.startswith(mark):
            raise SettingsError(
                f"{CONFIG}={shown_path(path)}: begins with a byte order mark of {encoding}: save it as UTF-8 "
                "without one"
            )


def shown_path(path: str) -> str:
    """Return a path in the form that may be shown in an error. A text that is not like a path is not repeated."""
    if re.search("[@?#%]|://", path) or not re.match(r"[./~]|.*\.toml$", path) or len(path) > 1000:
        return f"a text of {len(path):,} characters"
    return path


def describe(item: Mapping[str, Any], given: Mapping[str, Any], fields: Mapping[str, DeclaredSetting]) -> str:
    """Return a line for an error of pydantic-core: which setting is wrong, its source, and which values are valid.

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
    """Return a wrong value in the form that may be shown.

    If the value looks like an address, only its scheme and hosts are shown, because it may be meant for another
    setting.
    """
    if name == "message_key":
        return "a value that is not shown"
    if not isinstance(value, str | int | float | Path | None):
        return f"a {type(value).__name__}"  # a TOML table, which may contain anything
    if fields[name].form in ADDRESSES or (isinstance(value, str) and re.search("[@/:%?#]", value)):
        return addresses.public(value)
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number of more than 64 bits"
    if fields[name].form is DURATION and isinstance(value, float) and math.isfinite(value):
        return show_duration(value)  # a text was already parsed when its bounds were checked
    shown = str.__str__(value) if isinstance(value, str) else str(value)
    is_text = isinstance(fields[name].default, str | Path) or name == "app"
    if (_A_NAME if is_text else _A_NUMBER).fullmatch(shown) or shown == "":
        return repr(shown) if isinstance(value, str) else shown
    return f"a text of {len(shown):,} characters"  # it may be a key or a password, given for the wrong setting


def _named(name: str) -> str:
    """Return the name of an unknown setting, in the form that may be shown: it may be a value in the wrong place."""
    return name if re.fullmatch("[A-Za-z_][A-Za-z0-9_-]{0,39}", name) else f"of a name of {len(name):,} characters"


def _origin(name: str, given: Mapping[str, Any]) -> tuple[str, str]:
    """Return a setting's name as its author wrote it, and its source in parentheses."""
    if name in given:
        return name, ""
    if name in variables():
        return f"{PREFIX}{name.upper()}", " (environment variable)"
    return name, f" (in {shown_path(os.environ.get(CONFIG, ''))})"


def _suggestion(name: str, shown: str, fields: Mapping[str, DeclaredSetting]) -> str:
    matches = difflib.get_close_matches(name.lower(), fields, n=1, cutoff=0.5)
    if not matches:
        return "docs/settings.md lists all settings"
    return f"did you mean {PREFIX + matches[0].upper() if shown.startswith(PREFIX) else matches[0]}?"


def _message(item: Mapping[str, Any]) -> str:
    if item["type"] == "less_than_equal" and item["ctx"]["le"] == LONGEST:
        return f"must be at most {LONGEST:,} seconds (10 years)"
    return str(item["msg"]).removeprefix("Value error, ")
