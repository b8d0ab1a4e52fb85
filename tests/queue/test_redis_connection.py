"""Redis behind TLS: a password is told to nobody whose certificate was not verified, by no client of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from recovery.errors import ServerRefused
from recovery.queue import Broker
from recovery.settings import Settings
from recovery.stack.server_process import HOST
from tests.tls import Terminator, certificate, terminated

SECRET = "hunter22"

# In a process of its own: what workers install stays. Prints {client: error or None}.
CLIENTS = """
import json, sys
from celery import Celery
from recovery.errors import ServerUnavailable
from recovery.queue import Broker
from recovery.queue import remote as control
from recovery.queue.remote import tell_workers
from recovery.settings import load
from recovery.worker.messages import transport
from recovery.worker.celery_config import configuration
url, said = sys.argv[1], {}
control.WITHIN = 30  # it is about what is said, not about how fast

def worker():
    transport.install()
    app = Celery(set_as_current=False)
    app.conf.update(configuration(load(broker_url=url), []))
    for connection in (app.connection_for_read(), app.connection_for_write()):
        connection._establish_connection()  # once; `connect` would try again
        connection.default_channel.client.ping()

def remote():
    assert tell_workers(url, "settings_changed"), "not told"

for step in (worker, remote, Broker(url).check):
    try:
        said[step.__name__] = step()
    except Exception as error:
        said[step.__name__] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with certificates of the right name and of another."""
    folder = tmp_path_factory.mktemp("tls")
    certificate(folder, HOST)
    certificate(folder, "elsewhere.example")
    return folder


@pytest.fixture
def proxy(made: Path, settings: Settings) -> Iterator[Terminator]:
    with terminated((made / f"{HOST}.pem", made / f"{HOST}.key"), urlsplit(settings.broker_url).port or 0) as proxy:
        yield proxy


def ask(url: str) -> dict[str, str | None]:
    command = [sys.executable, "-c", CLIENTS, url]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout, done.stderr
    return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.thorough
def test_a_certificate_that_nobody_vouches_for(proxy: Terminator) -> None:
    said = ask(f"rediss://:{SECRET}@{HOST}:{proxy.port}/0")
    assert all(said.values()), said
    assert "CERTIFICATE_VERIFY_FAILED" in str(said["worker"])
    assert "for which no authority known to this machine vouches" in str(said["check"])
    assert SECRET not in str(said)
    assert proxy.refused >= 3, "each of them asked"
    assert proxy.heard == b"", "before the certificate was verified nothing may be said"


def test_one_that_is_vouched_for(proxy: Terminator, made: Path) -> None:
    said = ask(f"rediss://{HOST}:{proxy.port}/0?ssl_ca_certs={made / f'{HOST}.pem'}")
    assert not any(said.values()), said
    assert proxy.refused == 0
    assert b"PING" in proxy.heard


def test_one_of_another_server(made: Path, settings: Settings) -> None:
    """Vouched for, but its name is not the one that was asked for."""
    other = "elsewhere.example"
    behind = urlsplit(settings.broker_url).port or 0
    with terminated((made / f"{other}.pem", made / f"{other}.key"), behind) as proxy:
        url = f"rediss://{HOST}:{proxy.port}/0?ssl_ca_certs={made / f'{other}.pem'}"
        with pytest.raises(ServerRefused, match=r"that is for elsewhere\.example and not for 127\.0\.0\.1\. Name the"):
            Broker(url.replace("//", f"//:{SECRET}@")).check()
        assert proxy.heard == b""
        Broker(f"{url}&ssl_check_hostname=false").check()


def test_none_is_verified_where_that_is_said(proxy: Terminator) -> None:
    said = ask(f"rediss://{HOST}:{proxy.port}/0?ssl_cert_reqs=none")
    assert not any(said.values()), said
