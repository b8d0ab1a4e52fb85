"""Settings, read once from the environment (`RECOVERY_*`) or a TOML file, validated, and frozen.

The environment has priority over the file, and values that the code gives have priority over both. `RECOVERY_CONFIG`
names the file; its keys are the setting names below. An unknown name is an error that suggests the nearest name,
because a misspelt setting that is silently ignored is only noticed in an outage. Times are in seconds, or texts such as
`90s` and `10m`, as `recovery.wording` parses them.

Use `load` or `current`. They turn pydantic-core's errors into a SettingsError that says where each value came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic_core import ValidationError

from recovery.errors import SettingsError
from recovery.limits import LONGEST, LONGEST_SILENCE, SHORT_NAME, SHORTEST
from recovery.setting_forms import (
    APP_PATH,
    BROKER_URL,
    DATABASE_NAME,
    DURATION,
    FOLDER,
    HOST,
    INTERVAL_OR_NEVER,
    LOG_FORMAT,
    MESSAGE_KEY,
    MONGO_URI,
    NUMBER,
    SPARK_MASTER,
    SWITCH,
    TEXT,
    WHOLE,
    DeclaredSetting,
    LogFormat,
    Secret,
    as_text,
    setting,
    validator,
)
from recovery.setting_sources import PREFIX, describe, file_values, variables
from recovery.wording import show_duration

OFTEN = 0.01
"""The shortest interval of repeated work, in seconds.

A hundred writes or nudges per second use a tenth of one thread's capacity. Much more would use up the machine.
"""
BEATS = 3
"""Minimum number of heartbeats in a heartbeat timeout: one may be lost, and the next one may be late."""
LEAST_MESSAGE_MARGIN, LEAST_CLAIM_MARGIN = 0.5, 0.2
"""Minimum seconds of `message_margin` and `claim_margin`.

To queue and push a page of tasks takes some tenths of a second, whatever `message_timeout` is.
"""


class Settings:
    """All settings with their defaults. The comments give the reasons for the defaults. Frozen.

    Values that are given have priority over the environment, and the environment over the file that RECOVERY_CONFIG
    names.
    """

    model_fields: ClassVar[Mapping[str, DeclaredSetting]]
    """All settings, by name."""

    app: str | None = setting(APP_PATH, None, description="Path of your `Recovery` object: `package.module:name`.")
    mongo_uri: str = setting(
        MONGO_URI, "mongodb://127.0.0.1:27017", description="Address of MongoDB: a replica set, 6.0 or newer."
    )
    database: str = setting(
        DATABASE_NAME, "recovery", pattern=r"^[A-Za-z0-9_-]{1,38}$", description="Name of the MongoDB database."
    )
    # Applications that share a database by accident run each other's tasks.
    shared_with: str | None = setting(
        TEXT,
        None,
        pattern=f"^{SHORT_NAME}(,{SHORT_NAME})*$",
        description="Other applications that may use this database: names separated by commas; unset: none.",
    )
    broker_url: str = setting(
        BROKER_URL, "redis://127.0.0.1:6379/0", description="Address of Celery's broker, Redis or Valkey."
    )
    # Off by default: most users have a Redis of their own, behind a password.
    message_key: Secret | None = setting(
        MESSAGE_KEY,
        None,
        description="Key that signs messages, at least 32 characters; or several keys, separated by commas.",
    )
    accept_unsigned: bool = setting(
        SWITCH,
        False,
        description="Whether workers with a key accept unsigned messages, while the key is introduced.",
    )
    # On by default, because whoever needs metrics also needs earlier counts. Loopback is unreachable from the network.
    metrics_port: int | None = setting(
        WHOLE,
        None,
        ge=0,
        le=65535,
        description="Port of Prometheus metrics; unset: the first free port from 9101; 0: no metrics.",
    )
    metrics_host: str = setting(HOST, "127.0.0.1", description="Address on which metrics are served.")
    # Text, because people read it, and Celery's users know it.
    log_format: LogFormat = setting(
        LOG_FORMAT,
        LogFormat.TEXT,
        description="Log format of workers, beat and long-running commands: `text`, or `json`, one object per line.",
    )
    data_dir: Path = setting(
        FOLDER, Path(".recovery"), description="Folder for the data of the servers of `recovery up`."
    )
    # MongoDB's own default is half of the memory; an embedded server shares the machine with the workers.
    mongo_cache_gb: float = setting(
        NUMBER, 0.5, ge=0.25, le=10_000, description="Cache size of the MongoDB that `recovery up` starts."
    )

    # A heartbeat every 2 s, and three missed ones: a dead machine is detected within 4 to 8 s, and a worker that its
    # machine delays for a few seconds does not count as lost.
    heartbeat_interval: float = setting(
        DURATION, 2.0, ge=OFTEN, le=LONGEST_SILENCE // BEATS, description="Interval of a worker's heartbeats."
    )
    heartbeat_timeout: float = setting(
        DURATION,
        6.0,
        ge=SHORTEST,
        le=LONGEST_SILENCE,
        description="Time without a heartbeat after which a worker counts as lost.",
    )
    scan_interval: float = setting(
        DURATION, 1.0, ge=OFTEN, le=LONGEST, description="Interval at which Celery beat nudges the scanners."
    )
    scan_batch: int = setting(WHOLE, 1000, ge=1, le=100_000, description="Records that a scanner processes at once.")
    # The last safety net, because each step has a shorter deadline of its own. The time doubles while a process is
    # found healthy, so a process that waits for weeks is checked once a day.
    idle_timeout: float = setting(
        DURATION,
        60.0,
        ge=SHORTEST,
        le=LONGEST,
        description="Time without a change after which a process is checked for the first time.",
    )
    # Long enough for a busy queue to drain a burst. A lost message delays its task by this time.
    message_timeout: float = setting(
        DURATION,
        10.0,
        ge=SHORTEST,
        le=LONGEST,
        description="Time after which a queued task is checked for the first time for a lost message.",
    )
    # A result is applied within milliseconds. If it takes longer than this, it was interrupted.
    apply_timeout: float = setting(
        DURATION,
        5.0,
        ge=SHORTEST,
        le=LONGEST,
        description="Time after which a result that is not applied is checked for the first time.",
    )
    # Larger batches are no more efficient. When a slot is killed, up to this many tasks run again.
    batch_size: int = setting(
        WHOLE,
        64,
        ge=1,
        le=1000,
        description="Maximum number of quick tasks that a slot takes at once; 1: it takes only what Celery hands it.",
    )
    shutdown_grace: float = setting(
        DURATION,
        10.0,
        ge=0,
        le=LONGEST,
        description="Time that running attempts have to end after SIGTERM, before they are given back.",
    )
    # Longer than a rolling deployment takes to replace the first worker.
    version_grace: float = setting(
        DURATION,
        600.0,
        ge=0,
        le=LONGEST,
        description="Time for which all versions of your code must have refused a task's arguments before it fails.",
    )
    # Turn this off only to test that the deadlines alone are enough.
    events: bool = setting(
        SWITCH, True, description="Whether workers react to events (a dead child or worker) at once."
    )
    scanners: bool = setting(SWITCH, True, description="Whether workers answer the nudges of Celery beat.")

    canary: bool = setting(
        SWITCH, True, description="Whether workers serve `recovery.canary`, the actor of `recovery drill`."
    )
    # Off by default: anybody who may start processes could have workers killed.
    drill_kill: bool = setting(
        SWITCH,
        False,
        description="Whether `recovery drill --kill` may kill this worker or a process of its pool.",
    )

    spark_master: str = setting(SPARK_MASTER, "local[*]", description="Spark master of sweeps and of large operations.")
    # One worker needs about ten seconds for these. For fewer processes Spark is not faster.
    spark_from: int = setting(
        WHOLE,
        100_000,
        ge=1,
        le=100_000_000,
        description="Number of processes from which an operation runs in Spark, if a worker serves Spark.",
    )
    spark_memory: str = setting(
        TEXT, "1g", pattern=r"^[1-9][0-9]{0,8}[kmgKMG]$", description="Memory of the Spark driver."
    )
    # A sweep finds what no deadline finds, and takes minutes of one worker.
    sweep_interval: float = setting(
        INTERVAL_OR_NEVER, 86_400.0, le=LONGEST, description="Interval at which beat orders a sweep; 0: never."
    )
    sweep_repair: bool = setting(SWITCH, True, description="Whether the sweep that beat orders repairs what it finds.")

    def __init__(self, **given: Any) -> None:
        """Validate the given values, over the environment and the file.

        Raises:
            ValidationError: A setting is unknown or wrong. `load` raises SettingsError instead.
            SettingsError: The file can't be read.
        """
        values = {**file_values(), **variables(), **given}
        self.__dict__.update(_VALIDATOR.validate_python(values), model_fields_set=set(values))

    model_fields_set: set[str]
    """Names of the settings that the code, the environment or the file gave."""

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"{name}: settings are frozen; `model_copy` makes others")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{name}: settings are frozen")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self.model_dump() == other.model_dump()

    def __hash__(self) -> int:
        return hash(tuple(self.model_dump().items()))

    def __repr__(self) -> str:
        shown = (f"{name}={declared.shown(getattr(self, name))!r}" for name, declared in self.model_fields.items())
        return f"Settings({', '.join(shown)})"

    def model_dump(self) -> dict[str, Any]:
        """Return {setting name: value}."""
        return {name: getattr(self, name) for name in self.model_fields}

    def model_copy(self, *, update: Mapping[str, Any] = {}) -> Settings:
        """Return these settings with some values replaced. The new values are not checked."""
        copy = object.__new__(Settings)
        given = self.model_fields_set | set(update)
        copy.__dict__.update({**self.__dict__, **update}, model_fields_set=given)
        return copy

    @property
    def shared_names(self) -> tuple[str, ...]:
        """Names of the other applications that may use this database."""
        return tuple(self.shared_with.split(",")) if self.shared_with else ()

    @property
    def message_margin(self) -> float:
        """Seconds within which a message is pushed after its task was queued; see `rules.Surroundings`."""
        return max(LEAST_MESSAGE_MARGIN, 0.2 * self.message_timeout)

    @property
    def claim_margin(self) -> float:
        """Seconds within which a worker claims a task after it received the message; see `rules.Surroundings`."""
        return max(LEAST_CLAIM_MARGIN, 0.08 * self.message_timeout)

    @property
    def claim_within(self) -> float:
        """Maximum seconds for a claim. A worker that needs longer is as good as lost, so another worker should claim
        the task."""
        return self.heartbeat_timeout / 2

    @property
    def polled_within(self) -> float:
        """Seconds after its last poll for which a queue counts as polled. Heartbeats report polls, and may be late."""
        return self.heartbeat_timeout + self.heartbeat_interval

    @property
    def scanned_within(self) -> float:
        """Seconds within which a worker records a scan, and that it received a nudge from beat.

        Workers record these at least every two seconds. If no scan was recorded for this time, workers scan by
        themselves.
        """
        return max(5.0, 3 * self.scan_interval)

    @property
    def nudged_within(self) -> float:
        """Seconds within which a running beat records in Redis that it nudged. Redis counts whole seconds."""
        return max(3.0, 3 * self.scan_interval)

    def environment(self) -> dict[str, str]:
        """Return these settings as environment variables for a process that this process starts."""
        return {
            f"{PREFIX}{name.upper()}": as_text(value) for name, value in self.model_dump().items() if value is not None
        }


Settings.model_fields = {name: value for name, value in vars(Settings).items() if isinstance(value, DeclaredSetting)}


def _heartbeat_order(values: dict[str, Any]) -> dict[str, Any]:
    interval, timeout = values["heartbeat_interval"], values["heartbeat_timeout"]
    if timeout < BEATS * interval * (1 - 1e-9):  # as a float, 3 * 0.1 is greater than 0.3
        raise ValueError(
            f"heartbeat_timeout={show_duration(timeout)} must be at least three times "
            f"heartbeat_interval={show_duration(interval)}: otherwise a healthy worker would count as lost "
            "after one lost heartbeat and a late one"
        )
    return values


_VALIDATOR = validator(Settings.model_fields, _heartbeat_order)


def load(**overrides: Any) -> Settings:
    """Return the settings from the environment and the TOML file that it names.

    Args:
        overrides: Values with priority over both; None means not given.

    Raises:
        SettingsError: The message names each wrong setting, where it came from and which values are valid.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        lines = [describe(item, given, Settings.model_fields) for item in error.errors()]
        raise SettingsError("\n".join(lines)) from None


@lru_cache(maxsize=1)
def current() -> Settings:
    """Return this process's settings, which are read at first use."""
    return load()
