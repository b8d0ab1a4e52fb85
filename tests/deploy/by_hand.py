"""Services of docker-compose.yml run by hand, where there is no container engine: each by its own command line and in
its own environment, after what it depends on, and asked by its own health check.

What differs from a container, and nothing else does:

- Each runs at an address of 127.0.0.0/8 of its own, which stands where the file has a service's name, 0.0.0.0 or
  127.0.0.1. Ports are those of the file.
- Volumes are folders of the test, and stand where the file has a path in the container.
- Programs are those of this machine. What an image's entrypoint does besides is not done.
- As root, what is `read_only` really is, with its own empty /tmp, under a user without rights (contained.sh), who owns
  the service's volumes. Who runs this as another user has it run as it is, and `contained` is False.
- A service's secrets are copies in a folder of its own.
"""

from __future__ import annotations

import random
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from recovery.stack.child import ChildProcess
from tests.deploy.composed import ROOT, Service
from tests.deploy.programs import can_contain, contained, search_path
from tests.waiting import wait_until

TIMEOUT = 120.0
ENTRYPOINTS = {"prom/prometheus": "prometheus", "prom/alertmanager": "alertmanager"}
"""{image: the program that its entrypoint runs with the service's command}."""
START_PARTS = 3
"""Parts of our entrypoint that come before the program: `sh`, the script, the file that it makes."""
NOT_STARTED = {"grafana"}
"""What no package brings to this machine. It alone is not run."""


@dataclass
class Instance:
    """A service that runs, or ran: one of its replicas."""

    service: Service
    address: str
    folder: Path
    child: ChildProcess
    environment: Mapping[str, str]

    def log(self) -> str:
        """The end of what it wrote."""
        return "\n".join(self.child.last_lines(60))


class ByHand:
    """A cluster of these services, in `folder`."""

    def __init__(self, services: Mapping[str, Service], folder: Path) -> None:
        self.services, self.folder = services, folder
        self.instances: dict[str, list[Instance]] = {}
        self.contained = can_contain()
        self._path = search_path(folder / "bin")
        addresses = _addresses()
        own = {name: [next(addresses) for _ in range(one.replicas)] for name, one in services.items()}
        self.addresses = {name: own[one.shares_network_of or name] for name, one in services.items()}
        """{service: those of its replicas}."""
        self._address = {name: found[0] for name, found in self.addresses.items() if found}

    def up(self, *names: str) -> None:
        """Start these services, or all that run by themselves, and before each what it depends on. Returns when all
        that have a health check are healthy."""
        for name in names or sorted(self.services, key=lambda name: (len(self._all_needs(name)), name)):
            service = self.services[name]
            if name in self.instances or name in NOT_STARTED or "tools" in service.profiles:
                continue
            for needed, condition in service.needs.items():
                self.up(needed)
                if condition == "service_completed_successfully":
                    self.wait_done(needed)
            self.instances[name] = [self._start(service, number) for number in range(service.replicas)]
            for instance in self.instances[name] if service.health else ():
                self.wait_healthy(instance)

    def wait_done(self, name: str) -> str:
        """Until a service has ended by itself, which must be well; what it said."""
        [instance] = self.instances[name]
        assert instance.child.wait(TIMEOUT), f"{name} does not end:\n{instance.log()}"
        assert instance.child.exit_code == 0, f"{name} ended with {instance.child.exit_code}:\n{instance.log()}"
        return instance.log()

    def wait_healthy(self, instance: Instance) -> None:
        """Until its health check says so."""

        def healthy() -> bool:
            assert instance.child.running, f"{instance.service.name} has ended:\n{instance.log()}"
            return self.is_healthy(instance)

        wait_until(healthy, TIMEOUT, f"{instance.service.name} is healthy; {instance.child.log}")

    def is_healthy(self, instance: Instance) -> bool:
        """What its health check says now."""
        kind, *test = instance.service.health
        command = ["/bin/sh", "-c", *test] if kind == "CMD-SHELL" else test
        command = [part.replace("/proc/[0-9]*/", f"/proc/{instance.child.pid}/") for part in command]
        return self.run(instance.service.name, command).returncode == 0

    def run(self, name: str, command: list[str]) -> subprocess.CompletedProcess[str]:
        """A command in a service's container, as `docker compose exec` or `run` would run it."""
        service = self.services[name]
        folder = self._folder(f"{name}-run")
        environment = self._environment(service, folder, self._address[name])
        # Each command has a /tmp of its own here, in which what the entrypoint made is missing.
        command = [*service.entrypoint[:START_PARTS], *command]
        command = self._wrapped(service, [self.here(part, service, folder) for part in command])
        return subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )

    def here(self, text: str, service: Service, folder: Path, address: str = "") -> str:
        """A part of a command line, or a variable, with this machine's addresses and paths."""
        for name, other in self._address.items():
            text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?=:\d+(?:[,/?]|$))", other, text)
        own = address or self._address[service.name]
        text = re.sub(r"(?<![\d.])(?:0\.0\.0\.0|127\.0\.0\.1)(?![\d.])", own, text)
        paths = {target: self._folder(f"volume {volume}") for target, volume in service.volumes.items()}
        paths |= {target: self._mounted(source) for target, source in service.mounts.items()}
        paths["/run/secrets"] = self._secrets(service)
        if not (service.read_only and self.contained):
            paths["/tmp"] = folder
        wanted = "|".join(map(re.escape, sorted(paths, key=len, reverse=True)))
        return re.sub(rf"(?<![\w./-])({wanted})(?=/|$)", lambda match: str(paths[match[1]]), text) if paths else text

    def down(self) -> None:
        """Kill what still runs, the last started first."""
        for instances in reversed(self.instances.values()):
            for instance in instances:
                instance.child.kill_group()

    def _start(self, service: Service, number: int) -> Instance:
        address = self.addresses[service.name][number]
        folder = self._folder(f"{service.name}-{number + 1}")
        command = [self.here(part, service, folder, address) for part in service.command]
        # What other containers know by the service's name.
        command = [self._address.get(part, part) if before == "--host" else part for before, part in _pairs(command)]
        entrypoint = ENTRYPOINTS.get(service.image.partition(":")[0])
        environment = self._environment(service, folder, address)
        child = ChildProcess(
            f"{service.name}-{number + 1}",
            self._wrapped(service, [entrypoint, *command] if entrypoint else command),
            self.folder / "logs" / f"{service.name}-{number + 1}.log",
            env=environment,
            cwd=folder,
        )
        return Instance(service, address, folder, child, environment)

    def _environment(self, service: Service, folder: Path, address: str) -> dict[str, str]:
        """The service's own, and of this machine what an image brings: where programs are."""
        own = {key: self.here(value, service, folder, address) for key, value in service.environment.items()}
        # What other containers know by a service's name, and where Java listens: everywhere, in a container.
        own |= {key: self._address.get(own[key], own[key]) for key in own if not key.endswith("_LOGIN")}
        own["SPARK_LOCAL_IP"] = address
        ours = {"PATH": self._path, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "HOME": "/nonexistent"}
        return {**ours, **own}

    def _wrapped(self, service: Service, command: list[str]) -> list[str]:
        if not (service.read_only and self.contained):
            return command
        writable = [self._folder(f"volume {volume}") for volume in service.volumes.values()]
        return contained(command, self.folder, writable=writable, may_execute="spark" in service.profiles)

    def _secrets(self, service: Service) -> Path:
        """A folder with those that it sees, and no others."""
        folder = self._folder(f"secrets of {service.name}")
        for name, file in service.secrets.items():
            if not (folder / name).exists():
                shutil.copy(file, folder / name)
        return folder

    def _mounted(self, source: Path) -> Path:
        """A folder of the repository; of Prometheus's a copy with addresses in it, since there is no name service."""
        if not (source / "prometheus.yml").exists():
            return source
        copy = self._folder("prometheus configuration")
        if not any(copy.iterdir()):
            shutil.copytree(source, copy, dirs_exist_ok=True)
            (copy / "prometheus.yml").write_text(self._without_names((source / "prometheus.yml").read_text()))
        return copy

    def _without_names(self, text: str) -> str:
        import yaml

        config = yaml.safe_load(text)
        for job in config["scrape_configs"]:
            for found in job.pop("dns_sd_configs", ()):
                addresses = [one for name in found["names"] for one in self.addresses.get(name, ())]
                job["static_configs"] = [{"targets": [f"{one}:{found['port']}" for one in addresses]}]
        text = re.sub(r"\blocalhost:(?=\d)", "prometheus:", yaml.safe_dump(config))
        return re.sub(r"\b(prometheus|alertmanager):(?=\d)", lambda match: f"{self._address[match[1]]}:", text)

    def _all_needs(self, name: str) -> set[str]:
        needs = self.services[name].needs
        return set(needs).union(*(self._all_needs(other) for other in needs))

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _pairs(command: list[str]) -> Iterator[tuple[str, str]]:
    return zip(["", *command], command, strict=False)


def _addresses() -> Iterator[str]:
    """Addresses of this machine at which nobody else listens."""
    while True:
        network = f"127.{random.randrange(1, 255)}.{random.randrange(1, 255)}"
        with socket.socket() as probe, suppress(OSError):
            probe.bind((f"{network}.1", 27017))
            break
    yield from (f"{network}.{number}" for number in range(1, 255))
