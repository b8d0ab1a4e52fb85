"""Without Java, or with one too old, a sweep says what to install, before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.errors import SparkUnavailable
from recovery.settings import Settings
from recovery.sweep import java, sweep

INSTALL = "apt install openjdk-17-jre-headless"


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH; there is no JAVA_HOME."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def fake_java(folder: Path, told: str, code: int = 0) -> None:
    folder.mkdir(exist_ok=True)
    script = folder / "java"
    script.write_text(f"#!/bin/sh\n/bin/cat >&2 <<'END'\n{told}\nEND\nexit {code}\n")
    script.chmod(0o755)


@pytest.mark.usefixtures("nowhere")
def test_no_java() -> None:
    with pytest.raises(SparkUnavailable, match=INSTALL):
        sweep(Settings())


@pytest.mark.parametrize(
    ("told", "version"),
    [('java version "1.8.0_202"', 8), ('openjdk version "11.0.22" 2024-01-16', 11), ('openjdk version "16-ea"', 16)],
)
def test_java_too_old(nowhere: Path, told: str, version: int) -> None:
    fake_java(nowhere, told)
    with pytest.raises(SparkUnavailable, match=rf"from PATH\) is Java {version}, .*17 or newer.*{INSTALL}"):
        java.check()


@pytest.mark.parametrize("told", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "25" 2025-09-16'])
def test_java_that_will_do(nowhere: Path, told: str) -> None:
    fake_java(nowhere, f"Picked up JAVA_TOOL_OPTIONS: -Dfile.encoding=UTF-8\n{told}\nOpenJDK Runtime Environment")
    java.check()


def test_java_home_comes_before_path(nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(nowhere, 'openjdk version "17.0.15"')
    home = tmp_path / "old java"
    home.mkdir()
    fake_java(home / "bin", 'java version "1.8.0_202"')
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(SparkUnavailable, match="from JAVA_HOME"):
        java.check()


def test_java_home_without_java(nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(nowhere, 'openjdk version "17.0.15"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(SparkUnavailable, match="no bin/java"):
        java.check()


def test_java_that_breaks(nowhere: Path) -> None:
    fake_java(nowhere, "Error occurred during initialization of VM", code=1)
    with pytest.raises(SparkUnavailable, match="does not report its version"):
        java.check()


def test_no_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda _: None)
    with pytest.raises(SparkUnavailable, match=r"pip install 'recovery-workers\[spark\]'"):
        java.check()
