"""What the value of a setting may look like: a type for each form, whose check says what was meant.

Looks at the value alone. Whether a server answers, or a module is there, is found out where it is used.
"""

from __future__ import annotations

import ipaddress
import os
import re
from enum import StrEnum
from pathlib import Path, PurePath
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, SecretStr

from recovery.addresses import Address, read
from recovery.durations import parse_duration

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
"""What Celery's transport and redis-py both take, under one name and with one meaning, and the values."""


class LogFormat(StrEnum):
    """How a log is written."""

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
        raise ValueError("has options, and there are none but those of TLS, for rediss://")
    for name, given in parts.options:
        if not re.fullmatch(BROKER_OPTIONS.get(name, "(?!)"), given):
            known = ", ".join(f"{option}={wanted}" for option, wanted in BROKER_OPTIONS.items()).replace(".+", "FILE")
            raise ValueError(f"has an option that can't be; there are {known}")
    return value


def _is_redis(parts: Address) -> bool:
    """Whether an address names one server, and a database by its number."""
    is_one = not set(",%") & set(parts.hosts)
    return parts.scheme in ("redis", "rediss") and is_one and re.fullmatch(r"\d{0,4}", parts.path or "") is not None


def _message_key(value: SecretStr) -> SecretStr:
    for key in value.get_secret_value().split(","):
        if not _KEY.fullmatch(key):
            raise ValueError(
                "must be 32 to 200 letters, digits and -_.~+/= (or several such keys with commas between); "
                "`openssl rand -hex 32` makes one"
            )
    return value


def _database(value: str) -> str:
    if value in ("admin", "config", "local"):
        raise ValueError("is one of MongoDB's own; take another name")
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


def _folder(value: Any) -> Any:
    path = os.fspath(value) if isinstance(value, str | PurePath) else ""
    if not path or "\0" in path:
        raise ValueError("must be the path of a folder, for example .recovery")
    return value


def _master(value: str) -> str:
    if not _SPARK_MASTER.fullmatch(value):
        raise ValueError("must be local[*], local[N], yarn, spark://host:port, k8s://host:port or sc://host:port")
    if ";token=" in value:
        raise ValueError("must have no token, which would be shown: it goes into SPARK_CONNECT_AUTHENTICATE_TOKEN")
    return value


def _no_switch(value: Any) -> Any:
    if isinstance(value, bool):  # which Python takes for 0 or 1
        raise ValueError("must be a number")
    return value


def _duration(value: Any) -> Any:
    return parse_duration(value) if isinstance(value, str) else _no_switch(value)


AppPath = Annotated[str, AfterValidator(_app)]
MongoUri = Annotated[str, AfterValidator(_mongo)]
BrokerUrl = Annotated[str, AfterValidator(_broker)]
DatabaseName = Annotated[str, AfterValidator(_database)]
MessageKey = Annotated[SecretStr, AfterValidator(_message_key)]
Host = Annotated[str, AfterValidator(_host)]
Folder = Annotated[Path, BeforeValidator(_folder)]
SparkMaster = Annotated[str, AfterValidator(_master)]
Number = Annotated[float, BeforeValidator(_no_switch)]
Duration = Annotated[float, BeforeValidator(_duration)]
Whole = Annotated[int, BeforeValidator(_no_switch)]
