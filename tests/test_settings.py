"""Settings: where a value comes from, and what a wrong one is told."""

from __future__ import annotations

import math
import os
from pathlib import Path

import pytest

from recovery import settings
from recovery.errors import ServerUnavailable, SettingsError
from recovery.queue import Broker
from recovery.setting_forms import DURATION, INTERVAL_OR_NEVER
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
    with pytest.raises(AttributeError, match="frozen"):
        settings.load().database = "other"
    with pytest.raises(AttributeError, match="frozen"):
        del settings.load().database


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


def test_a_key_in_capital_letters_is_refused_with_the_name_in_small_ones(config: Path) -> None:
    config.write_text('DATABASE = "x"\n')
    assert refusal() == f"unknown setting DATABASE (in {config}): did you mean database?"


def test_unknown_override_is_refused() -> None:
    assert refusal(scan_bach=5) == "unknown setting scan_bach: did you mean scan_batch?"


def test_wrong_values_are_all_named_with_their_origin(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text("scan_batch = 0\n")
    monkeypatch.setenv("RECOVERY_IDLE_TIMEOUT", "soon")
    message = refusal(app="nothing")
    assert f"setting scan_batch (in {config}): Input should be greater than or equal to 1; got 0" in message
    assert "setting RECOVERY_IDLE_TIMEOUT (environment variable): must be a duration, for example 90, 90s, " in message
    assert "setting app: must be 'package.module:name'" in message
    assert len(message.splitlines()) == 3


FORMS = (DURATION, INTERVAL_OR_NEVER)
TIMES = (
    "scan_interval",
    "idle_timeout",
    "message_timeout",
    "apply_timeout",
    "shutdown_grace",
    "version_grace",
    "sweep_interval",
)


@pytest.mark.parametrize("value", ["1e15", "316224001", "3661d", "9" * 20])
@pytest.mark.parametrize("name", TIMES)
def test_no_time_is_longer_than_ten_years(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"RECOVERY_{name.upper()}", value)
    (said,) = refusal().splitlines()
    assert f"RECOVERY_{name.upper()} (environment variable): must be at most 316,224,000 seconds (10 years)" in said


def test_ten_years_are_taken() -> None:
    ten_years = settings.load(**dict.fromkeys(TIMES, 316224000))
    assert {getattr(ten_years, name) for name in TIMES} == {316224000.0}


def test_no_worker_may_be_silent_for_longer_than_an_hour() -> None:
    assert settings.load(heartbeat_interval=1200, heartbeat_timeout=3600).heartbeat_timeout == 3600
    assert "less than or equal to 3600; got 3601" in refusal(heartbeat_timeout=3601)
    assert "less than or equal to 1200; got 1201" in refusal(heartbeat_interval=1201)


def test_a_password_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVERY_BROKER_URL", "http://user:secret@host")
    assert "secret" not in refusal()
    assert refusal().endswith("; got ***")


WRONG = [
    *(("heartbeat_interval", value, "greater than or equal to 0.01") for value in (1e-300, 0, -1, "0.001")),
    *((name, True, "must be a number") for name in ("scan_interval", "scan_batch", "metrics_port", "mongo_cache_gb")),
    *(("idle_timeout", value, "greater than or equal to 0.001") for value in (-math.inf, 1e-300, "0", "0.5ms")),
    *(("idle_timeout", value, "must be at most") for value in (math.nan, math.inf)),
    *(("idle_timeout", value, "number") for value in ([1], {"a": 1})),
    *(
        ("idle_timeout", value, "must be a duration, for example 90, 90s, 10m, 2h or 1d")
        for value in ("soon", "", "-1", "-inf", "inf", "nan", "1e400", "9" * 400, "10 minutes", "1m30s", "10M")
    ),
    *(("data_dir", value, "path of a folder") for value in ("", "a\0b")),
    *(("metrics_host", value, "IP address or a host") for value in ("", "a b", "h:80", "[::1", "-x", "é", "x" * 300)),
    *(("database", value, "MongoDB's own") for value in ("admin", "local", "config")),
    *(("app", value, "package.module:name") for value in ("..:x", "a..b:c", "a:b:c", ":", "a:", "a/b:c", "a:b c")),
    *(("spark_master", value, "must be local") for value in ("", "local[0]", "local[", "http://h", "spark://")),
    *(("broker_url", value, "must be redis://") for value in ("unix:///x", "redis://", "redis://a,b", "redis://h/x")),
    ("broker_url", "redis://h?nosuch=1", "has options"),
    ("broker_url", "rediss://h?nosuch=1", "the options are ssl_cert_reqs="),
    ("mongo_uri", "mongodb://h:abc/", "must be mongodb://"),
    ("mongo_uri", "mongodb://[::1", "must be mongodb://"),
    ("mongo_uri", "mongodb://[:::::]", "must be mongodb://"),
]


@pytest.mark.parametrize(("name", "value", "said"), WRONG)
def test_a_value_that_can_not_be(name: str, value: object, said: str) -> None:
    message = refusal(**{name: value})
    assert f"setting {name}: " in message and said in message


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://h1,h2:27018/?replicaSet=rs0",
        "mongodb://u:p%40ss@h/db?authSource=admin&tlsCAFile=/etc/ca.pem",
        "mongodb://[::1]:1,127.0.0.1:2",
        "mongodb://%2Ftmp%2Fmongodb-27017.sock",
        "mongodb+srv://user:%5Bx%5D@cluster.example.net/?w=majority",
    ],
)
def test_addresses_of_mongodb(uri: str) -> None:
    assert settings.load(mongo_uri=uri).mongo_uri == uri


@pytest.mark.parametrize(
    "url", ["redis://h", "redis://:p%2Fw@h:1/15", "rediss://u:p@[::1]:1/0?ssl_cert_reqs=none&ssl_ca_certs=/etc/ca.pem"]
)
def test_addresses_of_redis(url: str) -> None:
    assert settings.load(broker_url=url).broker_url == url


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("mongodb://h/?nosuch=1", "Unknown option"),
        ("mongodb://h/?tls=true&tlsCAFile=/nosuch/ca.pem", "/nosuch/ca.pem"),
        ("mongodb://h/?maxPoolSize=many", "must be an integer"),
        ("mongodb://h/?compressors=snappy", "must install the python-snappy module"),
        ("mongodb://h/?datetime_conversion=datetime_ms", "correct the value of datetime_conversion"),
        (
            "mongodb://h/?tls=true&tlsCertificateKeyFile=/none&tlsCertificateKeyFilePassword=secret",
            "there is no such file",
        ),
    ],
)
def test_what_pymongo_can_not_use(uri: str, said: str) -> None:
    with pytest.raises(SettingsError, match="RECOVERY_MONGO_URI=mongodb://h: ") as caught:
        check_server(uri, timeout=0.1)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "9" * 5000, "x = '\\x1b" + "x" * 2_000_000], ids=len)
def test_a_file_that_is_no_file_of_settings(config: Path, text: str) -> None:
    config.write_text(text)
    assert refusal().startswith(f"RECOVERY_CONFIG={config}: ")


def test_a_file_that_is_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVERY_CONFIG", "/dev/zero")
    assert refusal() == "RECOVERY_CONFIG=/dev/zero: there is no such file"


def test_a_table_is_not_repeated(config: Path) -> None:
    config.write_text("[mongo_uri]\npassword = 'secret'\n")
    assert "got a dict" in refusal() and "secret" not in refusal()


@pytest.mark.parametrize(
    ("interval", "timeout", "shown"), [(4, 8, "8s/4s"), (4, 11.9, "11.9s/4s"), (None, 5, "5s/2s"), (3, None, "6s/3s")]
)
def test_a_lost_beat_would_kill(interval: float | None, timeout: float | None, shown: str) -> None:
    """The error names both settings, also the one that was not set."""
    given = {"heartbeat_interval": interval, "heartbeat_timeout": timeout}
    told = refusal(**{name: value for name, value in given.items() if value is not None})
    least, most = shown.split("/")
    expected = f"settings: heartbeat_timeout={least} must be at least three times heartbeat_interval={most}: "
    assert told.startswith(expected)


@pytest.mark.parametrize("interval", [0.1, 0.2, 0.7, 1.1, 4, 1200])
def test_three_beats_are_enough(interval: float) -> None:
    timeout = round(3 * interval, 1)
    assert settings.load(heartbeat_interval=interval, heartbeat_timeout=timeout).heartbeat_timeout == timeout


@pytest.mark.parametrize(
    ("timeout", "message", "claim"), [(0.001, 0.5, 0.2), (1, 0.5, 0.2), (2.5, 0.5, 0.2), (10, 2, 0.8), (600, 120, 48)]
)
def test_a_push_under_way_has_half_a_second_at_the_least(timeout: float, message: float, claim: float) -> None:
    """However short the message timeout is: a page of requeued tasks takes as long to be pushed."""
    loaded = settings.load(message_timeout=timeout)
    assert (loaded.message_margin, loaded.claim_margin) == (pytest.approx(message), pytest.approx(claim))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("shop:app\r", "It has a carriage return: save the file that it comes from with Unix line ends (LF)"),
        ("\ufeffshop:app", "It begins with a byte order mark: save the file that it comes from as UTF-8 without one"),
        ('"shop:app"', "It is in quotes, which are a part of it here: leave them out"),
        ("'shop:app'", "It is in quotes, which are a part of it here: leave them out"),
        ("shop:app ", "It begins or ends with white space: leave that out"),
    ],
)
def test_what_can_not_be_seen_of_a_value_is_named(value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an env file has it that was written on Windows, or for a shell."""
    monkeypatch.setenv("RECOVERY_APP", value)
    assert refusal().endswith(f". {said}") and "shop:app\r" not in refusal()
    monkeypatch.delenv("RECOVERY_APP")
    monkeypatch.setenv("RECOVERY_CONFIG", value)
    assert refusal().endswith(f"there is no such file. {said}")


@pytest.mark.parametrize(("encoding", "mark"), [("utf-8-sig", "UTF-8"), ("utf-16", "UTF-16")])
def test_a_byte_order_mark_in_a_file_is_named(config: Path, encoding: str, mark: str) -> None:
    """As editors on Windows write it."""
    config.write_text('app = "shop:app"\n', encoding=encoding)
    assert refusal() == (
        f"RECOVERY_CONFIG={config}: begins with a byte order mark of {mark}: save it as UTF-8 without one"
    )


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


KEY = "k" * 32


def test_the_key_of_messages_is_handed_to_children_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVERY_MESSAGE_KEY", f"{KEY},{'l' * 40}")
    loaded = settings.load()
    assert loaded.environment()["RECOVERY_MESSAGE_KEY"] == f"{KEY},{'l' * 40}"
    assert KEY not in f"{loaded!r} {loaded} {loaded.model_dump()}"


@pytest.mark.parametrize(
    "value",
    ["", "short-secret", f"{KEY},", f",{KEY}", f"{KEY},short-secret", f"{KEY} ", f" {KEY}", "é" * 32, f"{KEY}\n"],
)
def test_a_key_of_another_form_is_named_and_not_shown(value: str) -> None:
    with pytest.raises(SettingsError, match="setting message_key: must be 32 to 200 letters") as refused:
        settings.load(message_key=value)
    assert not any(part in str(refused.value) for part in ("short-secret", KEY))


SECRET = "s3cretpw"


@pytest.mark.parametrize("value", [SECRET, SECRET * 5, f"{SECRET} x", "k" * 32, "9" * 40, f"mongodb://u:{SECRET}@h/"])
@pytest.mark.parametrize("name", sorted(settings.Settings.model_fields))
def test_no_secret_in_the_wrong_place_is_shown(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"RECOVERY_{name.upper()}", value)
    try:
        settings.load()
    except SettingsError as error:
        assert value not in str(error) and SECRET not in str(error)


@pytest.mark.parametrize("value", [f"mongodb://u:{SECRET}@h/", SECRET, "k" * 40, f"{SECRET}/+{SECRET}=="])
def test_nor_where_the_file_is_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOVERY_CONFIG", value)
    assert refusal() == f"RECOVERY_CONFIG=a text of {len(value)} characters: there is no such file"


def test_nor_as_a_name(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text(f'"mongodb://u:{SECRET}@h/" = 1\n')
    assert SECRET not in refusal() and "unknown setting of a name of 23 characters" in refusal()
    monkeypatch.setenv(f"RECOVERY_MONGODB://U:{SECRET}@H/", "1")
    assert SECRET.upper() not in refusal().upper()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("soon", "'soon'"),
        ("-1", "'-1'"),
        ("1e-300", "'1e-300'"),
        ("nan", "'nan'"),
        ("3601x", "'3601x'"),
        ("0", "0s"),
        ("2h", "2h"),
        ("90m", "90m"),
        (3601, "3601"),
        ("3601 seconds", "a text of 12 characters"),
    ],
)
def test_what_was_meant_is_shown(value: object, shown: str) -> None:
    assert refusal(heartbeat_timeout=value).endswith(f"; got {shown}")


@pytest.mark.parametrize("value", ["0.5", "999ms"])
def test_sweeps_are_apart_or_switched_off(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [settings.load(sweep_interval=given).sweep_interval for given in ("0", "1s")] == [0, 1]
    monkeypatch.setenv("RECOVERY_SWEEP_INTERVAL", value)
    assert refusal().startswith("setting RECOVERY_SWEEP_INTERVAL (environment variable): must be at least 1s, or 0 for")


def test_a_time_is_a_number_of_seconds_or_a_duration(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.write_text('idle_timeout = "10m"\nsweep_interval = "1d"\napply_timeout = 7\nmongo_cache_gb = "0.5"\n')
    monkeypatch.setenv("RECOVERY_SHUTDOWN_GRACE", "1.5h")
    monkeypatch.setenv("RECOVERY_MESSAGE_TIMEOUT", "20")
    loaded = settings.load(scan_interval="500ms")
    taken = {name: getattr(loaded, name) for name in TIMES}
    assert taken == {
        "idle_timeout": 600.0,
        "sweep_interval": 86400.0,
        "apply_timeout": 7.0,
        "shutdown_grace": 5400.0,
        "message_timeout": 20.0,
        "scan_interval": 0.5,
        "version_grace": 600.0,
    }
    for name, text in loaded.environment().items():
        monkeypatch.setenv(name, text)
    assert settings.load() == loaded, "handed on to a process that is started"


def test_no_other_number_is_a_duration() -> None:
    assert "setting mongo_cache_gb: Input should be a valid number" in refusal(mongo_cache_gb="1m")
    assert "setting scan_batch: Input should be a valid integer" in refusal(scan_batch="1m")
    durations = {name for name, found in settings.Settings.model_fields.items() if found.form in FORMS}
    assert {*TIMES, "heartbeat_interval", "heartbeat_timeout"} == durations
