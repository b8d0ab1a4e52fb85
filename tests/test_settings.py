"""Settings: where a value comes from, and what a wrong one is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import ValidationError

from recovery import settings
from recovery.errors import ServerUnavailable, SettingsError
from recovery.queue import Broker
from recovery.store import check_server


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.upper().startswith("RECOVERY_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "a folder" / "recovery.toml"
    path.parent.mkdir()
    monkeypatch.setenv("RECOVERY_CONFIG", str(path))
    return path


def refusal(**overrides: object) -> str:
    with pytest.raises(SettingsError) as caught:
        settings.load(**overrides)
    return str(caught.value)


def test_defaults_are_valid() -> None:
    assert settings.load().database == "recovery"


def test_given_wins_over_environment_over_file(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('database = "file"\nscan_batch = 7\nscan_interval = 9\n')
    monkeypatch.setenv("RECOVERY_DATABASE", "environment")
    monkeypatch.setenv("RECOVERY_SCAN_BATCH", "8")
    loaded = settings.load(database="given", events=None)
    assert (loaded.database, loaded.scan_batch, loaded.scan_interval) == ("given", 8, 9.0)
    assert loaded.events is True
    assert loaded.model_fields_set == {"database", "scan_batch", "scan_interval"}


def test_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        settings.load().database = "other"


def test_environment_gives_the_same_settings_to_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = settings.load(app="shop:app", events=False, data_dir="a folder/data", metrics_port=9100)
    for name, value in parent.environment().items():
        monkeypatch.setenv(name, value)
    assert settings.load() == parent


def test_current_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings.current.cache_clear()
    first = settings.current()
    monkeypatch.setenv("RECOVERY_DATABASE", "other")
    assert settings.current() is first
    settings.current.cache_clear()


@pytest.mark.parametrize("name", ["RECOVERY_MONGO_URL", "recovery_mongo_url"])
def test_unknown_variable_is_refused_with_the_nearest_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "mongodb://h")
    assert "unknown setting RECOVERY_MONGO_URL" in refusal()
    assert "did you mean RECOVERY_MONGO_URI?" in refusal()


@pytest.mark.parametrize("name", ["RECOVERY_CRASH_AT", "RECOVERY_LEDGER", "RECOVERY_ZZZ"])
def test_no_variable_is_passed_over(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    assert f"unknown setting {name}" in refusal()


def test_unknown_key_is_refused_with_the_nearest_name(config: Path) -> None:
    config.write_text('databse = "x"\n')
    assert refusal() == f"unknown setting databse (in {config}): did you mean database?"


def test_unknown_override_is_refused() -> None:
    assert refusal(scan_bach=5) == "unknown setting scan_bach: did you mean scan_batch?"


def test_wrong_values_are_all_named_with_their_origin(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("scan_batch = 0\n")
    monkeypatch.setenv("RECOVERY_IDLE_TIMEOUT", "soon")
    message = refusal(app="nothing")
    assert f"setting scan_batch (in {config}): Input should be greater than or equal to 1; got 0" in message
    assert "setting RECOVERY_IDLE_TIMEOUT (environment variable): Input should be a valid number" in message
    assert "setting app: must be 'package.module:name'" in message
    assert len(message.splitlines()) == 3


TIMES = (
    "heartbeat_interval",
    "heartbeat_timeout",
    "scan_interval",
    "idle_timeout",
    "message_timeout",
    "apply_timeout",
    "shutdown_grace",
    "sweep_interval",
)


@pytest.mark.parametrize("value", ["1e15", "316224001", "inf", "9" * 400])
@pytest.mark.parametrize("name", TIMES)
def test_no_time_is_longer_than_ten_years(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"RECOVERY_{name.upper()}", value)
    (said,) = refusal(**({"heartbeat_timeout": 316224000} if name == "heartbeat_interval" else {})).splitlines()
    assert f"RECOVERY_{name.upper()} (environment variable): must be at most 316,224,000 seconds (10 years)" in said


def test_ten_years_are_taken() -> None:
    ten_years = settings.load(**dict.fromkeys(TIMES, 316224000) | {"heartbeat_interval": 1})
    assert {getattr(ten_years, name) for name in TIMES} == {316224000.0, 1.0}


def test_a_password_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVERY_BROKER_URL", "http://user:secret@host")
    assert "secret" not in refusal()
    assert refusal().endswith("; got ***")


def test_late_beat_would_kill() -> None:
    assert refusal(heartbeat_interval=4, heartbeat_timeout=6).startswith("settings: heartbeat_timeout must be")


def test_file_that_is_not_there(config: Path) -> None:
    assert refusal() == f"RECOVERY_CONFIG={config}: there is no such file"


def test_file_that_is_not_toml(config: Path) -> None:
    config.write_text("database: x")
    assert refusal().startswith(f"RECOVERY_CONFIG={config}: not TOML:")


def test_no_password_is_shown_of_a_server_that_does_not_answer() -> None:
    with pytest.raises(ServerUnavailable) as mongo:
        check_server("mongodb://me:secret@127.0.0.1:9/?serverSelectionTimeoutMS=100", timeout=0.2)
    with pytest.raises(ServerUnavailable) as broker:
        Broker("redis://:secret@127.0.0.1:9/0").check()
    for caught in (mongo, broker):
        assert "secret" not in str(caught.value) and "127.0.0.1:9" in str(caught.value)
