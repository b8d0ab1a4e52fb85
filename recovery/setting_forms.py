"""Forms of setting values: a type and checks for each kind of setting, with error messages that say what is valid.

Only the value itself is checked. Whether a server answers or a module exists is checked at its first use.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Any

from pydantic_core import SchemaValidator

from recovery.addresses import Address, public, read
from recovery.wording import parse_duration

_ADDRESS = (
    "{scheme}://[user:password@]host[:port]{rest}; in user and password all but letters, digits and -._~ are "
    "percent-encoded (@ is %40, / is %2F)"
)
MONGO_FORM = _ADDRESS.format(scheme="mongodb", rest="[,host…][/database][?option=value&…]")
BROKER_FORM = _ADDRESS.format(scheme="redis", rest="[/number], with TLS rediss://")
BROKER_OPTIONS = {
    "ssl_cert_reqs": "required|optional|none",
    "ssl_check_hostname": "true|false",
    "ssl_ca_certs": ".+",
    "ssl_certfile": ".+",
    "ssl_keyfile": ".+",
}
"""Options that Celery's transport and redis-py both accept with the same name and meaning, and patterns of their
values."""


class LogFormat(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_KEY = re.compile(r"[A-Za-z0-9_.~+/=-]{32,200}")
_SPARK_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d{0,4})(,[1-9]\d{0,4})?\])?|yarn|(spark|k8s)://[A-Za-z0-9.,:/_-]+|sc://[A-Za-z0-9.:_-]+(/;[A-Za-z0-9_=;.-]*)?"
)


def _app(value: str) -> str:
    module, _, name = value.partition(":")
    if not (_MODULE.fullmatch(module) and name.isidentifier()):
        raise ValueError("must be 'package.module:name', for example 'shop.orders:app'")
    return value


def _mongo(value: str) -> str:
    parts = read(value)
    if parts is None or not parts.scheme.startswith("mongodb"):
        raise ValueError(f"must be {MONGO_FORM}")
    return value


def _broker(value: str) -> str:
    parts = read(value)
    if parts is None or not _is_redis(parts):
        raise ValueError(f"must be {BROKER_FORM}")
    if parts.options and parts.scheme == "redis":
        raise ValueError("has options; only the TLS options are allowed, with rediss://")
    for name, value_of_option in parts.options:
        if not re.fullmatch(BROKER_OPTIONS.get(name, "(?!)"), value_of_option):
            known = ", ".join(f"{option}={pattern}" for option, pattern in BROKER_OPTIONS.items()).replace(".+", "FILE")
            raise ValueError(f"has an invalid option; the options are {known}")
    return value


def _is_redis(parts: Address) -> bool:
    """Return whether an address is of Redis, with one server and, if any, a database number."""
    is_one = not set(",%") & set(parts.hosts)
    return parts.scheme in ("redis", "rediss") and is_one and re.fullmatch(r"\d{0,4}", parts.path or "") is not None


def _message_key(value: str) -> Secret:
    for key in value.split(","):
        if not _KEY.fullmatch(key):
            raise ValueError(
                "must be 32 to 200 letters, digits and -_.~+/= (or several such keys with commas between); "
                "`openssl rand -hex 32` makes one"
            )
    return Secret(value)


def _database(value: str) -> str:
    if value in ("admin", "config", "local"):
        raise ValueError("is one of MongoDB's own databases; choose another name")
    return value


def _host(value: str) -> str:
    if len(value) > 253 or not (_is_ip(value) or _HOST_NAME.fullmatch(value)):
        raise ValueError("must be an IP address or a host's name, for example 0.0.0.0")
    return value


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _folder(value: Any) -> Path:
    path = os.fspath(value) if isinstance(value, str | PurePath) else ""
    if not path or "\0" in path:
        raise ValueError("must be the path of a folder, for example .recovery")
    return Path(path)


def _master(value: str) -> str:
    if not _SPARK_MASTER.fullmatch(value):
        raise ValueError("must be local[*], local[N], yarn, spark://host:port, k8s://host:port or sc://host:port")
    if ";token=" in value:
        raise ValueError("must not contain a token, which would be shown; set SPARK_CONNECT_AUTHENTICATE_TOKEN instead")
    return value


def _no_switch(value: Any) -> Any:
    if isinstance(value, bool):  # Python treats a bool as 0 or 1
        raise ValueError("must be a number")
    return value


def _duration(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else _no_switch(value)


def _interval(value: float) -> float:
    if value < 0 or 0 < value < 1:
        raise ValueError("must be at least 1s, or 0 for never")
    return value


def _secret(value: Any) -> Any:
    return value.get_secret_value() if hasattr(value, "get_secret_value") else value


class Secret:
    """A text that is never shown."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def get_secret_value(self) -> str:
        """Return the text."""
        return self._text

    def __repr__(self) -> str:
        return "Secret('**********')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


@dataclass(frozen=True, slots=True)
class SettingForm:
    """The valid values of a setting: a type of pydantic-core, with our own checks before and after it."""

    base: Mapping[str, Any]
    before: Callable[[Any], Any] | None = None
    after: Callable[[Any], Any] | None = None

    def schema(self, limits: Mapping[str, Any], *, or_none: bool) -> Any:
        """Return the pydantic-core schema of this form.

        Args:
            limits: Limits of pydantic-core, such as `ge` and `pattern`.
            or_none: Whether None is valid, too.
        """
        schema: dict[str, Any] = {**self.base, **limits}
        for kind, check in (("function-after", self.after), ("function-before", self.before)):
            if check is not None:
                schema = {"type": kind, "function": {"type": "no-info", "function": check}, "schema": schema}
        return {"type": "nullable", "schema": schema} if or_none else schema


@dataclass(frozen=True, slots=True)
class DeclaredSetting:
    """A setting: its valid values, its default, and its description."""

    form: SettingForm
    default: Any
    description: str
    limits: Mapping[str, Any]

    def schema(self) -> Any:
        """Return the pydantic-core schema of the setting, with its default."""
        schema = self.form.schema(self.limits, or_none=self.default is None)
        return {"type": "typed-dict-field", "schema": {"type": "default", "schema": schema, "default": self.default}}

    def shown(self, value: Any) -> Any:
        """Return a value in the form that may be shown: only the scheme and hosts of an address."""
        return public(value) if self.form in ADDRESSES else value


def setting(form: SettingForm, default: Any, *, description: str, **limits: Any) -> Any:
    """Declare a setting of `Settings`.

    Args:
        form: The form of its values.
        default: The default; None also makes None valid.
        description: The meaning, for docs/settings.md.
        limits: Limits of pydantic-core, such as `ge` and `pattern`.
    """
    return DeclaredSetting(form, default, description, limits)


def validator(settings: Mapping[str, DeclaredSetting], check: Callable[[dict[str, Any]], object]) -> SchemaValidator:
    """Return the validator of all settings. It checks each value, and then all values together with `check`.

    It is pydantic-core's validator without pydantic's models, because importing these would slow down short commands.
    """
    fields = {name: declared.schema() for name, declared in settings.items()}
    return SchemaValidator(
        {
            "type": "function-after",
            "function": {"type": "no-info", "function": check},
            "schema": {"type": "typed-dict", "fields": fields, "extra_behavior": "forbid"},
        },
        # `settings.load` adds the input to errors, because it knows which settings are addresses.
        {"title": "Settings", "hide_input_in_errors": True},
    )


def as_text(value: Any) -> str:
    """Return a setting's value as text for an environment variable."""
    return str(value).lower() if isinstance(value, bool) else str(_secret(value))


_TEXT = {"type": "str"}
TEXT = SettingForm(_TEXT)
SWITCH = SettingForm({"type": "bool"})
APP_PATH = SettingForm(_TEXT, after=_app)
MONGO_URI = SettingForm(_TEXT, after=_mongo)
BROKER_URL = SettingForm(_TEXT, after=_broker)
ADDRESSES = (MONGO_URI, BROKER_URL)
"""Forms of settings that may contain a password."""
DATABASE_NAME = SettingForm(_TEXT, after=_database)
MESSAGE_KEY = SettingForm(_TEXT, before=_secret, after=_message_key)
HOST = SettingForm(_TEXT, after=_host)
FOLDER = SettingForm({"type": "any"}, before=_folder)
SPARK_MASTER = SettingForm(_TEXT, after=_master)
NUMBER = SettingForm({"type": "float"}, before=_no_switch)
DURATION = SettingForm({"type": "float"}, before=_duration)
INTERVAL_OR_NEVER = SettingForm({"type": "float"}, before=_duration, after=_interval)
WHOLE = SettingForm({"type": "int"}, before=_no_switch)
LOG_FORMAT = SettingForm({"type": "enum", "cls": LogFormat, "members": list(LogFormat), "sub_type": "str"})
