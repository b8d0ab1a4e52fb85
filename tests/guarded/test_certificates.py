"""A certificate that doesn't fit: one line says of which server, what is wrong with it, and what to do."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest

from recovery import addresses, certificates
from recovery.cli.main import execute
from recovery.errors import CertificateRefused, RecoveryError, ServerUnavailable, SettingsError
from recovery.queue import Broker
from recovery.queue.redis_connection import client
from recovery.settings import load
from recovery.stack import Stack
from recovery.stack.server_process import HOST, free_port
from recovery.store import check_server
from recovery.sweep.job import Work, work_at_a_range
from tests.guarded.authority import LONG_AGO, Authority, Pair
from tests.guarded.marks import Mark, find
from tests.guarded.servers import DATABASE, Servers
from tests.tls import terminated

pytestmark = pytest.mark.thorough

APP = "tests.guarded.app:app"


@dataclass(frozen=True)
class Certificates:
    """One of each kind that doesn't fit."""

    expired: Pair
    elsewhere: Pair
    strange: Pair
    expired_client: Pair
    strange_client: Pair
    mixed: Pair
    """A certificate with the key of another."""


@pytest.fixture(scope="session")
def unfit(authority: Authority, stranger: Authority, folder: Path) -> Certificates:
    ours, other = authority.client("anybody"), authority.client("another")
    mixed = Pair(ours.cert, other.key, folder / "mixed")
    mixed.both.write_text(ours.cert.read_text() + other.key.read_text())
    return Certificates(
        expired=authority.server(HOST, when=LONG_AGO),
        elsewhere=authority.server("mongo-1.example", "mongo.example"),
        strange=stranger.server(HOST),
        expired_client=authority.client("anybody", when=LONG_AGO),
        strange_client=stranger.client("anybody"),
        mixed=mixed,
    )


def without(address: str, *options: str) -> str:
    for option in options:
        address = re.sub(rf"(?<=[?&]){option}=[^&]*&?", "", address)
    return address.rstrip("?&")


def told(address: str) -> tuple[type[RecoveryError], str]:
    """What the check of the server says."""
    with pytest.raises(RecoveryError) as caught:
        check_server(address, timeout=0.2) if address.startswith("mongodb") else Broker(address).check()
    said = str(caught.value)
    assert "\n" not in said
    parts = addresses.read(address)
    assert parts is not None and parts.password is not None
    assert find([Mark("password", addresses.unquote(parts.password))], {"the error": said.encode()}) == []
    return type(caught.value), said


@pytest.mark.parametrize("kind", ["expired", "elsewhere", "strange"])
@pytest.mark.parametrize("server", ["MongoDB", "Redis"])
def test_of_the_server(servers: Servers, unfit: Certificates, server: str, kind: str) -> None:
    pair: Pair = getattr(unfit, kind)
    with terminated((pair.cert, pair.key), servers.valkey.port) as proxy:
        if server == "MongoDB":
            address, option = servers.mongo_uri("worker", proxy.port), "tlsCAFile"
        else:
            address, option = servers.broker_url("worker", proxy.port), "ssl_ca_certs"
        error, said = told(address)
        assert proxy.heard == b"", "nothing is said to who can't be verified"
    variable = "RECOVERY_MONGO_URI" if server == "MongoDB" else "RECOVERY_BROKER_URL"
    assert error is CertificateRefused
    assert said.startswith(f"{server} at {addresses.public(address)} shows a certificate ")
    expected = {
        "expired": "certificate that expired on 2020-01-02. Have a new one made for it; if it is valid, set the "
        "clock of this machine, which says 20",
        "elsewhere": "certificate that is for mongo-1.example, mongo.example and not for 127.0.0.1. Name the server "
        f"in {variable} as its certificate does, or have one made for 127.0.0.1",
        "strange": f"certificate (signed by CN=stranger) for which {servers.authority.cert} ({option}) does not vouch. "
        f"If it is the right server, give the certificate of the authority that signed its own: {option}=FILE in "
        f"{variable}",
    }
    assert expected[kind] in said


def test_of_a_server_for_which_nobody_vouches(servers: Servers) -> None:
    for address, option in (
        (without(servers.mongo_uri("worker"), "tlsCAFile"), "tlsCAFile=FILE in RECOVERY_MONGO_URI"),
        (without(servers.broker_url("worker"), "ssl_ca_certs"), "ssl_ca_certs=FILE in RECOVERY_BROKER_URL"),
    ):
        error, said = told(address)
        assert error is CertificateRefused
        assert "(signed by CN=authority) for which no authority known to this machine vouches" in said
        assert said.endswith(option)


def test_no_certificate_of_ours(servers: Servers) -> None:
    """mongod closes the connection without a word; what is before Valkey says why."""
    error, said = told(without(servers.mongo_uri("worker"), "tlsCertificateKeyFile"))
    assert error is CertificateRefused
    assert "requires a client certificate, but RECOVERY_MONGO_URI names none. Give one that " in said
    assert said.endswith(": tlsCertificateKeyFile=FILE")
    error, said = told(without(servers.broker_url("worker"), "ssl_certfile", "ssl_keyfile"))
    assert error is CertificateRefused
    assert "requires a client certificate, but RECOVERY_BROKER_URL names none. Give one that " in said
    assert said.endswith(": ssl_certfile=FILE and ssl_keyfile=FILE")


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_one_of_ours_that_the_server_does_not_take(
    servers: Servers, unfit: Certificates, newest: ssl.TLSVersion
) -> None:
    own = unfit.strange_client
    error, said = told(servers.mongo_uri("worker", own=own))
    assert error is CertificateRefused
    wanted = (
        f"rejects our certificate {own.both} (CN=anybody, O=clients, signed by CN=stranger). Give a client "
        "certificate that "
    )
    assert wanted in said
    servers.terminator.close()
    proxy = servers.terminator = servers.terminated(newest=newest)
    address = servers.broker_url("worker").replace(str(servers.client.cert), str(own.cert))
    error, said = told(address.replace(str(servers.client.key), str(own.key)))
    assert error is CertificateRefused and proxy.heard == b""
    assert (
        f"{own.cert} (CN=anybody, O=clients, signed by CN=stranger): unknown ca. Give a client certificate that "
        in said
    )
    Broker(servers.broker_url("worker")).check()


def test_tls_where_there_is_none_and_the_other_way_round(servers: Servers) -> None:
    error, said = told(without(servers.mongo_uri("worker"), "tls", "tlsCAFile", "tlsCertificateKeyFile"))
    assert error is CertificateRefused
    assert "speaks TLS, and its address does not say so. In RECOVERY_MONGO_URI add tls=true, and tlsCAFile=FILE" in said
    plain = servers.broker_url("worker").partition("?")[0].replace("rediss:", "redis:")
    error, said = told(plain)
    assert error is CertificateRefused
    assert "address does not say so. In RECOVERY_BROKER_URL write rediss://, and ssl_ca_certs=FILE with" in said
    with hangs_up() as port:
        error, said = told(servers.broker_url("worker", port))
        assert error is ServerUnavailable and "RECOVERY_BROKER_URL, network, TLS at this port" in said
        error, said = told(servers.mongo_uri("worker", port))
        assert error is ServerUnavailable and "RECOVERY_MONGO_URI, network, and whether it speaks TLS at this" in said


@contextmanager
def hangs_up() -> Iterator[int]:
    """A port at which somebody closes each connection, as a mongod without TLS does that is spoken to in it."""
    with socket.create_server((HOST, 0)) as listening:

        def answer() -> None:
            with suppress(OSError):
                while True:
                    listening.accept()[0].close()

        threading.Thread(target=answer, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def test_a_server_that_is_away_is_no_matter_of_certificates(servers: Servers) -> None:
    port = free_port()
    for address in (servers.mongo_uri("worker", port), servers.broker_url("worker", port)):
        error, said = told(address)
        assert error is ServerUnavailable and "refused" in said


def test_a_member_that_may_serve_us_yet(servers: Servers, unfit: Certificates) -> None:
    """A worker that starts waits for it: of its certificate nothing is known, or nothing is wrong with it."""
    with terminated((unfit.expired.cert, unfit.expired.key), 0) as proxy:
        both = servers.mongo_uri("worker", proxy.port).replace(f":{proxy.port}", f":{proxy.port},{HOST}:{free_port()}")
        assert told(both)[0] is ServerUnavailable
        error, said = told(servers.mongo_uri("worker", proxy.port).replace(HOST, f"{HOST}:{proxy.port},{HOST}", 1))
        assert error is CertificateRefused and "expired" in said
        served = servers.mongo_uri("worker").replace(HOST, f"{HOST}:{proxy.port},{HOST}", 1)
        check_server(served, timeout=5)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Not as root, who may read everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_files_of_ours(servers: Servers, unfit: Certificates, tmp_path: Path) -> None:
    """No server is asked, and no driver: what can't be used is told by its name."""
    cert = servers.client.cert
    no_pem = tmp_path / "certificate.der"
    no_pem.write_bytes(ssl.PEM_cert_to_DER_cert(cert.read_text()))
    damaged = tmp_path / "damaged.pem"
    whole = servers.client.both.read_text()
    damaged.write_text(whole.replace(cert.read_text()[100:300], "", 1))
    cut_off = tmp_path / "cut off.pem"
    cut_off.write_text(whole[:-100])
    assert damaged.read_text() != whole and whole.rstrip().endswith("PRIVATE KEY-----")
    locked, mixed = servers.sweep, unfit.mixed
    cases = {
        ("tlsCAFile", "/nowhere/ca.pem", None): "there is no such file",
        ("tlsCAFile", str(tmp_path), None): "can't be read: Is a directory",
        ("tlsCAFile", str(no_pem), None): "holds no certificate in PEM form",
        ("tlsCertificateKeyFile", "/nowhere/own.pem", None): "there is no such file",
        ("tlsCertificateKeyFile", str(cert), None): "holds no private key in PEM form",
        ("tlsCertificateKeyFile", str(no_pem), None): "holds no certificate in PEM form",
        ("tlsCertificateKeyFile", str(damaged), None): "holds a certificate that can't be read",
        ("tlsCertificateKeyFile", str(cut_off), None): "holds a private key that can't be read",
        ("tlsCertificateKeyFile", str(unfit.expired_client.both), None): "expired on 2020-01-02: have a new one made",
        ("tlsCertificateKeyFile", str(mixed.both), None): "holds a private key that does not belong to the certificate",
        (
            "tlsCertificateKeyFile",
            str(locked.both),
            None,
        ): "holds a private key with a password, but none is given in tlsCertificateKeyFi",
        (
            "tlsCertificateKeyFile",
            str(locked.both),
            "bad",
        ): "holds a private key with a password, which is different from the one in tlsCertificate",
        ("ssl_ca_certs", "/nowhere/ca.pem", None): "there is no such file",
        ("ssl_certfile", "/nowhere/own.pem", None): "there is no such file",
        ("ssl_certfile", str(damaged), None): "holds a certificate that can't be read",
        ("ssl_certfile", str(cut_off), None): "holds a private key that can't be read",
        ("ssl_certfile", str(unfit.expired_client.both), None): "expired on 2020-01-02: have a new one made",
        ("ssl_keyfile", str(cert), None): "holds no private key in PEM form",
        (
            "ssl_keyfile",
            str(unfit.strange_client.key),
            None,
        ): f"holds a private key that does not belong to the certificate in {cert}",
        (
            "ssl_keyfile",
            str(locked.key),
            None,
        ): "holds a private key with a password, which can't be given: remove the password (openssl pkey), and",
    }
    for (option, path, under), expected in cases.items():
        if option.startswith("tls"):
            variable, address = "RECOVERY_MONGO_URI", servers.mongo_uri("worker")
        else:
            variable, address = "RECOVERY_BROKER_URL", servers.broker_url("worker")
        address = re.sub(rf"(?<={option}=)[^&]*", quote(path, safe="/"), address)
        if option == "ssl_certfile":
            address = without(address, "ssl_keyfile")
        if under is not None:
            address += f"&tlsCertificateKeyFilePassword={under}"
        error, said = told(address)
        assert error is SettingsError, said
        assert said.startswith(f"{variable}={addresses.public(address)}: {option}={path}: {expected}"), (said, expected)


def test_a_key_that_may_not_be_read(servers: Servers) -> None:
    with TemporaryDirectory() as open_to_all:
        Path(open_to_all).chmod(0o755)
        cert, key = (Path(shutil.copy(one, open_to_all)) for one in (servers.client.cert, servers.client.both))
        key.chmod(0)
        redis = without(servers.broker_url("worker"), "ssl_ca_certs")
        redis = redis.replace(str(servers.client.cert), str(cert)).replace(str(servers.client.key), str(key))
        mongodb = without(servers.mongo_uri("worker", own=Pair(cert, key, key)), "tlsCAFile")
        for address, option in ((mongodb, "tlsCertificateKeyFile"), (redis, "ssl_keyfile")):
            with as_nobody():
                error, said = told(address)
            assert error is SettingsError
            assert said.endswith(
                f"{option}={key}: this user may not read it; correct the owner and mode of the file and its folders"
            )


def test_what_an_address_says_of_tls(servers: Servers) -> None:
    for address in ("mongodb://h/", "mongodb://h/?tls=false&tlsCAFile=/ca.pem", "mongodb://h/?replicaSet=rs0"):
        assert certificates.of_mongodb(address) is None
    for address in (
        "mongodb+srv://h.example/",
        "mongodb://h/?ssl=true",
        "mongodb://h/?tlsAllowInvalidCertificates=false",
    ):
        tls = certificates.of_mongodb(address)
        assert tls is not None and tls.verifies and tls.checks_host
    loose = certificates.of_mongodb("mongodb://h/?tls=true&tlsAllowInvalidHostnames=true")
    assert loose is not None and loose.verifies and not loose.checks_host
    for option in ("tlsInsecure", "tlsAllowInvalidCertificates"):
        none = certificates.of_mongodb(f"mongodb://h/?tls=true&{option}=true")
        assert none is not None and not none.verifies
    assert certificates.of_redis("redis://h/0") is None
    whole = certificates.of_redis(servers.broker_url("worker"))
    assert whole is not None and whole.own() is not None
    assert certificates.named(whole.own() or {}) == "CN=anybody, O=clients"
    assert replace(whole, cert=None, key=None).own() is None


@pytest.mark.parametrize("server", ["mongodb", "redis"])
def test_status_and_doctor_say_so(
    servers: Servers,
    unfit: Certificates,
    server: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in ("recovery.cli.connection", "recovery.health.mongodb_server"):
        monkeypatch.setattr(f"{module}.ANSWER_TIMEOUT", 0.3)
    for name, value in servers.environment("worker").items():
        monkeypatch.setenv(name, value)
    with terminated((unfit.expired.cert, unfit.expired.key), 0) as proxy:
        if server == "mongodb":
            monkeypatch.setenv("RECOVERY_MONGO_URI", servers.mongo_uri("worker", proxy.port))
        else:
            monkeypatch.setenv("RECOVERY_BROKER_URL", servers.broker_url("worker", proxy.port))
        assert execute(["status"]) == 2
        line = f"at {'mongodb' if server == 'mongodb' else 'rediss'}://{HOST}:{proxy.port} shows a certificate that "
        (said,) = capsys.readouterr().err.splitlines()
        assert said.startswith("error: ") and line in said
        assert execute(["doctor"]) == 2
        out = capsys.readouterr().out
        problem = rf"^PROBLEM {server} .*{re.escape(line)}expired on 2020-01-02"
        assert re.search(problem, out, re.MULTILINE), out
        assert f"not asked, since {server} did not answer" in out
    monkeypatch.setenv("RECOVERY_MONGO_URI", without(servers.mongo_uri("worker"), "tlsCAFile") + "&tlsCAFile=/no.pem")
    assert execute(["status"]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.endswith(": tlsCAFile=/no.pem: there is no such file")
    assert execute(["doctor"]) == 2
    assert capsys.readouterr().err.endswith(": tlsCAFile=/no.pem: there is no such file\n")
    monkeypatch.setenv("RECOVERY_MONGO_URI", servers.mongo_uri("worker"))
    monkeypatch.setenv(
        "RECOVERY_BROKER_URL", without(servers.broker_url("worker"), "ssl_ca_certs") + "&ssl_ca_certs=/no.pem"
    )
    # MongoDB is well, on however busy a machine.
    monkeypatch.setattr("recovery.health.mongodb_server.ANSWER_TIMEOUT", 30.0)
    assert execute(["doctor"]) == 2
    out = capsys.readouterr().out
    assert re.search("^PROBLEM redis .*ssl_ca_certs=/no.pem: there is no such file$", out, re.MULTILINE)
    assert re.search("^OK +mongodb", out, re.MULTILINE)


@pytest.mark.soak
def test_a_worker_that_starts_says_so(servers: Servers, unfit: Certificates, tmp_path: Path) -> None:
    """It ends at once with a line: no waiting helps. A beat takes a file that can't be used as badly."""
    good = servers.environment("worker")
    stack = Stack(tmp_path, mongo_uri=good["RECOVERY_MONGO_URI"], broker_url=good["RECOVERY_BROKER_URL"])
    no_file = {"RECOVERY_BROKER_URL": without(good["RECOVERY_BROKER_URL"], "ssl_ca_certs") + "&ssl_ca_certs=/no.pem"}
    with terminated((unfit.elsewhere.cert, unfit.elsewhere.key), 0) as proxy:
        cases = {
            "shows a certificate that is for mongo-1.example": {
                "RECOVERY_MONGO_URI": servers.mongo_uri("worker", proxy.port)
            },
            "requires a client certificate": {
                "RECOVERY_BROKER_URL": without(good["RECOVERY_BROKER_URL"], "ssl_certfile", "ssl_keyfile")
            },
            "ssl_ca_certs=/no.pem: there is no such file": no_file,
        }
        children = {line: stack.start_worker(APP, env={**good, **env}) for line, env in cases.items()}
        beat = stack.start_beat(APP, env={**good, **no_file})
        try:
            for line, child in children.items():
                assert child.wait(30) and child.exit_code == 2, child.last_lines()
                said = "\n".join(child.last_lines(50))
                assert said.count(line) == 1 and "Traceback" not in said, said
            assert beat.wait(30) and beat.exit_code == 2
            assert beat.last_lines(50) == [
                f"error: RECOVERY_BROKER_URL={addresses.public(good['RECOVERY_BROKER_URL'])}: "
                "ssl_ca_certs=/no.pem: there is no such file"
            ]
        finally:
            stack.kill_workers()


def test_an_executor_that_misses_a_file_says_so(servers: Servers) -> None:
    """Of the driver's machine, as it was not copied to its own."""
    address = re.sub(r"(?<=tlsCAFile=)[^&]*", "/nowhere/ca.pem", servers.mongo_uri("worker"))
    settings = load(mongo_uri=address, broker_url=servers.broker_url("worker"), database=DATABASE)
    error = work_at_a_range(Work(settings, 1, "an executor")).error
    assert error is not None and error.endswith(": tlsCAFile=/nowhere/ca.pem: there is no such file")
    assert find([servers.marks["worker"]], {"the error": error.encode()}) == []


@pytest.fixture(autouse=True)
def _no_client_is_left() -> Iterator[None]:
    yield
    client.cache_clear()
