"""Settings: read once from the environment (`RECOVERY_*`) or a TOML file, validated, frozen.

The environment wins over the file. The file is named by `RECOVERY_CONFIG`; its keys are the field names
below. A name that no field has is an error that suggests the nearest one, since a misspelt setting that is
silently ignored is found out in an outage. All times are in seconds.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from recovery.errors import SettingsError

PREFIX = "RECOVERY_"
CONFIG = "RECOVERY_CONFIG"


class Settings(BaseModel):
    """All settings with their defaults; each default is argued where it stands."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    app: str | None = Field(None, description="Where your `Recovery` object is: `package.module:name`.")
    mongo_uri: str = Field("mongodb://127.0.0.1:27017", description="MongoDB: a replica set, 6.0 or newer.")
    database: str = Field("recovery", pattern=r"^[A-Za-z0-9_-]{1,38}$", description="Database in MongoDB.")
    broker_url: str = Field("redis://127.0.0.1:6379/0", description="Redis or Valkey, Celery's broker.")
    # Off by default: two workers on one machine would ask for the same port.
    metrics_port: int | None = Field(None, ge=1, le=65535, description="Port of Prometheus metrics.")
    metrics_host: str = Field("127.0.0.1", description="Address that metrics are served on.")
    data_dir: Path = Field(Path(".recovery"), description="Where `recovery up` keeps its servers' data.")

    # A beat every 2 s and three missed ones: a killed machine is known in 6 to 8 s, and a worker that is
    # held up for a few seconds by its machine is not taken for dead.
    heartbeat_interval: float = Field(2.0, gt=0, description="How often a worker says that it lives.")
    heartbeat_timeout: float = Field(6.0, gt=0, description="Silence after which a worker counts as lost.")
    scan_interval: float = Field(1.0, gt=0, description="How often Celery beat nudges the scanners.")
    scan_batch: int = Field(1000, ge=1, le=100_000, description="Records that a scanner claims at once.")
    # The net under the nets: every step has a deadline of its own that is shorter. It doubles while a
    # process is found healthy, so a process that waits for weeks costs a look a day.
    idle_timeout: float = Field(60.0, gt=0, description="First look at a process in which nothing changes.")
    # Long enough for a busy queue to drain a burst; a message that is lost costs this once.
    message_timeout: float = Field(10.0, gt=0, description="First look at a queued task's message.")
    # Applying takes milliseconds; one that is not done by now was cut off.
    apply_timeout: float = Field(5.0, gt=0, description="First look at a decision that is not applied.")
    shutdown_grace: float = Field(
        10.0, ge=0, description="On SIGTERM: how long running attempts may end before they are given back."
    )
    # Off only to test that the deadlines alone are enough.
    events: bool = Field(True, description="Act at once on what is known at once (a dead child or worker).")
    scanners: bool = Field(True, description="Whether workers answer the nudges of Celery beat.")

    spark_master: str = Field("local[*]", description="Spark master of the sweep.")
    spark_memory: str = Field("1g", pattern=r"^\d+[kmgKMG]$", description="Memory of the Spark driver.")
    sweep_interval: float | None = Field(None, gt=0, description="How often beat starts a sweep; unset: never.")
    sweep_repair: bool = Field(True, description="Whether the sweep that beat starts repairs what it finds.")

    @field_validator("app")
    @classmethod
    def _app_form(cls, value: str | None) -> str | None:
        if value is not None and (value.count(":") != 1 or not all(value.split(":"))):
            raise ValueError("must be 'package.module:name', for example 'shop.orders:app'")
        return value

    @field_validator("mongo_uri")
    @classmethod
    def _mongo_form(cls, value: str) -> str:
        if not value.startswith(("mongodb://", "mongodb+srv://")):
            raise ValueError("must start with mongodb:// or mongodb+srv://")
        return value

    @field_validator("broker_url")
    @classmethod
    def _broker_form(cls, value: str) -> str:
        if not value.startswith(("redis://", "rediss://", "unix://")):
            raise ValueError("must start with redis://, rediss:// or unix://")
        return value

    @model_validator(mode="after")
    def _heartbeat_order(self) -> Settings:
        if self.heartbeat_timeout < 2 * self.heartbeat_interval:
            raise ValueError("heartbeat_timeout must be at least twice heartbeat_interval, or one late beat kills")
        return self

    def environment(self) -> dict[str, str]:
        """These settings as environment variables, to hand to a process that we start."""
        values = self.model_dump(mode="json", exclude_none=True)
        return {f"{PREFIX}{name.upper()}": _as_text(value) for name, value in values.items()}


def load(environ: dict[str, str] | None = None, **overrides: Any) -> Settings:
    """Settings from `environ` (by default the process's) over the TOML file it names; `overrides` win.

    Raises SettingsError naming each setting that is wrong, where it came from and what it should be.
    """
    environ = dict(os.environ) if environ is None else environ
    sources: dict[str, str] = {}
    values: dict[str, Any] = {}
    if path := environ.get(CONFIG):
        for name, value in _read_file(path).items():
            values[name], sources[name] = value, f"in {path}"
    for variable, text in environ.items():
        if variable.startswith(PREFIX) and variable != CONFIG:
            name = variable.removeprefix(PREFIX).lower()
            values[name], sources[name] = text, f"environment variable {variable}"
    values |= {name: value for name, value in overrides.items() if value is not None}
    for name in values:
        if name not in Settings.model_fields:
            raise SettingsError(_unknown(name, sources.get(name, "given")))
    try:
        return Settings(**values)
    except ValidationError as error:
        lines = [_describe(item, sources) for item in error.errors()]
        raise SettingsError("\n".join(lines)) from None


@lru_cache(maxsize=1)
def current() -> Settings:
    """The process's settings, read at first use."""
    return load()


def _read_file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{CONFIG}={path}: can't be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{CONFIG}={path}: not TOML: {error}") from None


def _unknown(name: str, source: str) -> str:
    near = difflib.get_close_matches(name, Settings.model_fields, n=1, cutoff=0.5)
    shown = name.upper() if source.startswith("environment") else name
    hint = (near[0].upper() if source.startswith("environment") else near[0]) if near else None
    prefix = PREFIX if source.startswith("environment") else ""
    if hint:
        return f"unknown setting {prefix}{shown} ({source}): did you mean {prefix}{hint}?"
    return f"unknown setting {prefix}{shown} ({source}): docs/settings.md lists all settings"


def _describe(item: Any, sources: dict[str, str]) -> str:
    name = str(item["loc"][0]) if item["loc"] else "settings"
    message = str(item["msg"]).removeprefix("Value error, ")
    where = f" ({sources[name]})" if name in sources else ""
    got = f"; got {item['input']!r}" if item["loc"] else ""
    return f"setting {name}{where}: {message}{got}"


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
