"""Addresses with a password, well and badly written: nothing that is shown has any of it, and no driver raises."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from kombu import Connection
from pydantic_core import ValidationError

from recovery import addresses
from recovery.cli.main import execute
from recovery.errors import SettingsError
from recovery.settings import Settings, load
from recovery.store.client import _client
from tests.fuzz.conftest import rounds

SECRET = "kw7Zq9Xv3JpY8"
ODD = [
    "@",
    "/",
    ":",
    "?",
    "#",
    "[",
    "]",
    "%",
    "%zz",
    " ",
    "\n",
    "\x1b[31m",
    "é",
    "\u202e",
    "\\",
    "'",
    '"',
    "&",
    "=",
    "+",
    "%40",
]
SCHEMES = [
    "mongodb://",
    "mongodb+srv://",
    "redis://",
    "rediss://",
    "unix://",
    "http://",
    "mongodb:/",
    "redis:",
    "",
    "//",
]
HOSTS = ["h", "h:1", "h:abc", "h:99999", "[::1]", "[::1", "[::1]:1", "a,b:2", "h..x", "", "-", "h:", "127.0.0.1:9", "é"]
OPTIONS = [
    "", "/", "/0", "/x", "/?replicaSet=rs0", f"/?password={SECRET}",
    f"?tlsCertificateKeyFilePassword={SECRET}&tls=true",
    f"/?authMechanismProperties=AWS_SESSION_TOKEN:{SECRET}", f"/?maxPoolSize={SECRET}", f"/?w={SECRET}&x", "?", "/?=",
    f"/?authMechanism={SECRET}", f"/{SECRET}@x", f"/?ssl_cert_reqs={SECRET}", "/?tlsCAFile=/none&tls=true",
    f"/?readPreference={SECRET}", f"/?compressors={SECRET}", f"/?{SECRET}=1", f"#{SECRET}",
]  # fmt: skip


def password(draw: random.Random) -> str:
    """The secret with odd characters in it, escaped or not. Each half is long enough not to be elsewhere by chance."""
    cut = draw.randrange(len(SECRET))
    text = SECRET[:cut] + "".join(draw.choices(ODD, k=draw.randrange(3))) + SECRET[cut:]
    return quote(text, safe="") if draw.random() < 0.4 else text


def address(draw: random.Random) -> str:
    if draw.random() < 0.3:
        scheme, host = draw.choice(SCHEMES[:4]), draw.choice(["127.0.0.1:9", "[::1]:1", "h.example"])
        option = draw.choice(OPTIONS[:9]) if scheme == "mongodb://" else ""
        return f"{scheme}u:{quote(password(draw), safe='')}@{host}{option}"
    scheme, host, options = draw.choice(SCHEMES), draw.choice(HOSTS), draw.choice(OPTIONS)
    user = draw.choice(["", "u", "u@v", "%75", SECRET])
    at = draw.choice(["@", "@", "@", "", "%40"])
    # Half of a password that ends at its own @ is a host, to whoever reads it.
    hidden = password(draw) if at == "@" else password(draw).replace("@", "")
    made = f"{scheme}{user}:{hidden}{at}{host}{options}" if draw.random() < 0.8 else f"{scheme}{host}{options}"
    if draw.random() < 0.2:
        place = draw.randrange(len(made) + 1)
        made = made[:place] + draw.choice(ODD if at == "@" else ODD[1:]) + made[place:]
    return made


def is_shown(said: str) -> bool:
    """Whether a part of the secret can be read: four letters of it in a row."""
    return any(SECRET[place : place + 4] in said for place in range(len(SECRET) - 3))


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith("RECOVERY_")]:
        monkeypatch.delenv(name)
    yield
    _client.cache_clear()


@rounds(ci=400, soak=40_000)
def test_settings_show_no_password(rounds: int, seed: int) -> None:
    draw, taken = random.Random(seed), 0
    for _ in range(rounds):
        given, name = address(draw), draw.choice(["mongo_uri", "broker_url", "app", "metrics_host", "database"])
        assert not is_shown(addresses.public(given)), given
        try:
            settings = load(**{name: given})
        except SettingsError as error:
            assert not is_shown(str(error)), (given, str(error))
        else:
            taken += 1
            assert name == "app" or not is_shown(repr(settings)), given
        try:
            Settings(**{name: given})
        except ValidationError as error:
            assert not is_shown(str(error)), given
    assert taken > rounds / 100


@rounds(ci=40, soak=5000)
def test_what_is_taken_is_taken_by_the_drivers(rounds: int, seed: int) -> None:
    """Each is opened, without a word to a server; what Celery's banner shows of one has no password."""
    from recovery.queue import Broker

    draw, opened = random.Random(seed), 0
    while rounds:
        given = address(draw)
        if given.startswith("mongodb+srv"):
            continue  # asks the name server
        try:
            load(**{"broker_url" if "redis" in given else "mongo_uri": given})
        except SettingsError:
            continue
        rounds -= 1
        try:
            if "redis" in given:
                with Connection(given) as connection:
                    # A user's name is shown there, by kombu.
                    user = quote(connection.userid or "", safe="")
                    assert not is_shown(connection.as_uri().replace(f"{user}:", "", 1)), given
                Broker(given)._redis  # noqa: B018
            else:
                _client(given, os.getpid()).close()
                _client.cache_clear()
            opened += 1
        except SettingsError as error:
            assert not is_shown(str(error)), (given, str(error))
    assert opened


@rounds(ci=6, soak=300)
def test_commands_show_no_password(
    rounds: int,
    seed: int,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draw = random.Random(seed)
    caplog.set_level(logging.DEBUG)
    # Nobody answers; to wait for that takes most of the time.
    monkeypatch.setattr("recovery.cli.connection.ANSWER_TIMEOUT", 0.1)
    monkeypatch.setattr("recovery.health.doctor.ASK_TIMEOUT", 0.1)
    for _ in range(rounds):
        given = address(draw).replace("\0", "")
        name = "RECOVERY_MONGO_URI" if draw.random() < 0.5 else "RECOVERY_BROKER_URL"
        if "srv" in given:
            continue  # asks the name server
        with monkeypatch.context() as variables:
            variables.setenv(name, given)
            if name == "RECOVERY_BROKER_URL":
                variables.setenv("RECOVERY_MONGO_URI", "mongodb://127.0.0.1:9")
            assert execute([draw.choice(["status", "doctor", "init", "sweep"])]) in (1, 2)
        out, err = capfd.readouterr()
        assert not is_shown(out + err + caplog.text), (given, out, err)
        assert "Traceback" not in err
