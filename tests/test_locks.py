"""What images are made of is locked: the parts of the lock are in step with it and with what is declared."""

from __future__ import annotations

import re
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "deploy" / "locks"
OURS = "recovery-workers"


def entries(lock: Path) -> dict[str, str]:
    """{package: its version, condition and hashes} of a lock."""
    lines = [line for line in lock.read_text().splitlines() if not line.startswith("#")]
    parts = re.split(r"\n(?=\S)", "\n".join(lines))
    return {part.partition("==")[0]: part.strip() for part in parts if "==" in part}


def closure(name: str, extra: str = "") -> set[str]:
    """What a package needs on this machine, with one of its extras, and what that needs."""
    found, left = set[str](), [Requirement(f"{name}[{extra}]" if extra else name)]
    while left:
        package = left.pop()
        for line in requires(package.name) or ():
            needed = Requirement(line)
            wanted = any(
                needed.marker is None or needed.marker.evaluate({"extra": one}) for one in ("", *package.extras)
            )
            if wanted and (key := canonicalize_name(needed.name)) not in found:
                found.add(key)
                left.append(needed)
    return found - {OURS}


@pytest.mark.parametrize("name", ["worker", "spark", "build"])
def test_a_part_has_the_versions_and_hashes_of_the_whole(name: str) -> None:
    whole, part = entries(ROOT / "constraints.txt"), entries(LOCKS / f"{name}.txt")
    assert {key: entry for key, entry in part.items() if key in whole and entry != whole[key]} == {}, "run make lock"
    only = {"setuptools"} if name == "build" else set()
    assert part.keys() - whole.keys() == only
    assert all("--hash=sha256:" in entry for entry in part.values())


@pytest.mark.parametrize("extra", ["", "spark"])
def test_a_part_has_what_its_image_needs_and_nothing_else(extra: str) -> None:
    locked = entries(LOCKS / f"{extra or 'worker'}.txt")
    # Of other platforms and older Pythons: the lock is for all that we support.
    here = {key for key, entry in locked.items() if Requirement(entry.split(" \\")[0]).marker is None}
    assert here <= closure(OURS, extra) <= locked.keys(), "run make lock"


def test_the_dockerfile_installs_nothing_without_a_hash() -> None:
    text = (ROOT / "Dockerfile").read_text()
    installs = re.findall(r"pip (?:install|wheel)[^&\n]*", text)
    assert len(installs) == 6, installs
    assert all("--require-hashes" in one or "--no-index" in one or one.endswith(" . \\") for one in installs), installs
    assert "PIP_NO_DEPS=1" in text


def test_images_are_pinned_by_what_docker_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "deploy")
    import pin_images

    docker, names = tmp_path / "docker", ["Dockerfile", "docker-compose.yml"]
    for name in names:
        (tmp_path / name).write_text((ROOT / name).read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin")
    docker.write_text('#!/bin/sh\necho "$6" >> asked; printf "sha256:%064d" 7\n')
    docker.chmod(0o755)
    pin_images.main(names)
    pin_images.main(names)
    watching = {"prom/prometheus:v3.5.0", "prom/alertmanager:v0.28.1", "grafana/grafana:12.1.0"}
    asked = {"mongo:8.0", "valkey/valkey:9.1", "python:3.11-slim-bookworm", *watching}
    assert set((tmp_path / "asked").read_text().split()) == asked
    pinned, before = ("".join((folder / name).read_text() for name in names) for folder in (tmp_path, ROOT))
    assert all(pinned.count(f"{tag}@sha256:{7:064}") == before.count(tag) > 0 for tag in asked)
    assert pinned.replace(f"@sha256:{7:064}", "") == before
    docker.write_text("#!/bin/sh\necho no such image >&2; exit 1\n")
    with pytest.raises(SystemExit, match=r"grafana:12\.1\.0: could not be looked up: no such image"):
        pin_images.main(names)
