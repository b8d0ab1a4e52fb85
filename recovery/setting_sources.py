"""Where settings come from: environment variables `RECOVERY_*`, and the TOML file that RECOVERY_CONFIG names."""

from __future__ import annotations

import codecs
import os
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from recovery.errors import SettingsError
from recovery.wording import unseen

PREFIX = "RECOVERY_"
CONFIG = "RECOVERY_CONFIG"

MAX_FILE_BYTES = 1_000_000
"""Of a TOML file: all settings with a comment each are some 10 kB. It bounds how deep a file can be nested, too."""


def variables() -> dict[str, str]:
    """Our environment variables by field name. Small letters count too."""
    found = {name.upper(): text for name, text in os.environ.items() if name.upper().startswith(PREFIX)}
    return {name.removeprefix(PREFIX).lower(): text for name, text in found.items() if name != CONFIG}


def file_values() -> dict[str, Any]:
    """What the TOML file has. One that is not there is an error."""
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
    """The same of what should be the path of a file."""
    if re.search("[@?#%]|://", path) or not re.match(r"[./~]|.*\.toml$", path) or len(path) > 1000:
        return f"a text of {len(path):,} characters"
    return path
