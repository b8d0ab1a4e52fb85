"""docker-compose.yml as docker-compose understands it, with random passwords as `make env` makes them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from workers.sweep import WORKER

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
TEMPLATE = ROOT / "deploy" / "compose" / "env.example"
MAKE_ENV = ROOT / "deploy" / "compose" / "env.sh"


@dataclass(frozen=True)
class Service:
    """One service."""

    name: str
    image: str
    command: list[str]
    environment: dict[str, str]
    health: list[str]
    secrets: dict[str, Path]
    """{name in /run/secrets: file here}."""
    mounts: dict[str, Path]
    """{path in the container: file or folder here}."""
    volumes: dict[str, str]
    """{path in the container: name of the volume}."""
    needs: dict[str, str]
    """{service: how far that has to be}."""
    profiles: frozenset[str]
    replicas: int
    read_only: bool
    shares_network_of: str | None
    networks: frozenset[str]
    entrypoint: tuple[str, ...]
    """The first part of `command`, which runs the rest of it."""
    ports: tuple[str, ...] = field(default=())


MODULES = {"workers.app": ["worker"], "workers.sweep": WORKER}
"""{a module that is started by `python -m`: the part of a `recovery` command that it stands for}."""


def as_typed(words: Sequence[str]) -> list[str] | None:
    """The words after `recovery` of what a command line does; None for one that is no command of ours."""
    if "recovery" in words:
        return list(words[words.index("recovery") + 1 :])
    for number, word in enumerate(words):
        if word in MODULES:
            return [*MODULES[word], *words[number + 1 :]]
    return None


def docker_compose(*arguments: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """What docker-compose says with these variables in its .env; skips the test where it isn't."""
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("docker-compose is not on this machine: apt install docker-compose")
    with tempfile.NamedTemporaryFile("w", suffix=".env") as file:
        file.write("".join(f"{name}={value}\n" for name, value in env.items()))
        file.flush()
        # Not the folder's own .env, nor the environment of whoever runs the tests.
        command = [program, "--env-file", file.name, "--file", str(COMPOSE_FILE), *arguments]
        return subprocess.run(
            command, env={"PATH": os.environ["PATH"]}, cwd=ROOT, capture_output=True, text=True, timeout=60
        )


def make_env(folder: Path, size: str = "full") -> dict[str, str]:
    """The variables of a new .env. Its folder of secrets is beside it, and not beside docker-compose.yml."""
    file = folder / f"{size}.env"
    folder.mkdir(exist_ok=True)
    subprocess.run(["sh", MAKE_ENV, file, size], check=True, capture_output=True, timeout=30)
    found = variables(file)
    return {**found, "SECRETS": str(folder / found["SECRETS"])}


def passwords(env: Mapping[str, str]) -> dict[str, str]:
    """{secret: what is in it}."""
    return {file.name: file.read_text().strip() for file in Path(env["SECRETS"]).iterdir()}


def variables(file: Path) -> dict[str, str]:
    """{name: value} of a file as env.example is one."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def services(env: Mapping[str, str]) -> dict[str, Service]:
    """All services that run with these variables: those of other profiles are left out."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed: make")
    said = docker_compose("config", env=env)
    assert said.returncode == 0, said.stderr
    config = yaml.safe_load(said.stdout)
    files = {name: Path(secret["file"]) for name, secret in config["secrets"].items()}
    found = {name: _service(name, one, files) for name, one in config["services"].items()}
    on = set(filter(None, env.get("COMPOSE_PROFILES", "").split(","))) | {"tools"}
    return {name: one for name, one in found.items() if not one.profiles or one.profiles & on}


def _service(name: str, one: dict[str, Any], files: Mapping[str, Path]) -> Service:
    mounts = [part.rsplit(":", 2)[:2] if part.count(":") > 1 else part.split(":") for part in one.get("volumes", ())]
    network = one.get("network_mode", "")
    return Service(
        name,
        one["image"],
        # What stands for a `$` in the file is doubled in what docker-compose says.
        [part.replace("$$", "$") for part in (*one.get("entrypoint", ()), *one.get("command", ()))],
        {key: str(value).replace("$$", "$") for key, value in one.get("environment", {}).items() if value is not None},
        [part.replace("$$", "$") for part in one.get("healthcheck", {}).get("test", ())],
        {secret["source"]: files[secret["source"]] for secret in one.get("secrets", ())},
        {target: Path(source) for source, target in mounts if source.startswith("/")},
        {target: source for source, target in mounts if not source.startswith("/")},
        {other: how["condition"] for other, how in one.get("depends_on", {}).items()},
        frozenset(one.get("profiles", ())),
        one.get("deploy", {}).get("replicas", 1),
        one.get("read_only", False),
        network.removeprefix("service:") if network.startswith("service:") else None,
        frozenset(() if network else one.get("networks", {"default": None})),
        tuple(one.get("entrypoint", ())),
        tuple(str(port) for port in one.get("ports", ())),
    )
