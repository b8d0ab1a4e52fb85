"""The programs that images bring, as this machine has them, and how they are kept from writing as in a container."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from recovery.stack.servers import Mongod, Valkey
from tests.deploy.composed import ROOT

CONTAINED = Path(__file__).parent / "contained.sh"
WANTED = {
    "mongosh": (["mongosh"], "npm install --global mongosh"),
    "valkey-cli": (["valkey-cli", "redis-cli"], "apt install redis-tools"),
    "prometheus": (["prometheus"], "apt install prometheus"),
    "alertmanager": (["prometheus-alertmanager", "alertmanager"], "apt install prometheus-alertmanager"),
    "java": (["java"], "apt install openjdk-17-jre-headless"),
    "wget": (["wget"], "apt install wget"),
}
"""{program: its names here, and how it is had}. The servers come with the project, Spark with PySpark."""


@cache
def can_contain() -> bool:
    """Whether `contained` works here: as root, and where mount namespaces may be made."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0


def contained(
    command: list[str], *folders: Path, writable: Sequence[Path] = (), may_execute: bool = False
) -> list[str]:
    """The command as a read-only container runs it, with an empty /tmp of its own, in which it sees these folders; of
    the `writable` ones it is the owner."""
    options = f"rw,{'exec' if may_execute else 'noexec'}"
    seen = [str(ROOT), *map(str, folders), *(f"+{folder}" for folder in writable)]
    return ["unshare", "--mount", "sh", str(CONTAINED), options, *seen, "--", *command]


def search_path(folder: Path) -> str:
    """PATH with all programs of images. Skips the test where one isn't there."""
    folder.mkdir(parents=True)
    found = {"mongod": Mongod(folder, folder).binary, "valkey-server": Valkey(folder, folder).binary}
    for name, (names, install) in WANTED.items():
        program = next(filter(None, map(shutil.which, names)), None)
        if program is None:
            pytest.skip(f"{' or '.join(names)} is not on this machine: {install}")
        found[name] = Path(program)
    for name, binary in found.items():
        (folder / name).symlink_to(binary)
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), "/usr/local/bin", os.defpath])
