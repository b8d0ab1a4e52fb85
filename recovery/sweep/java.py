"""Whether Java and PySpark are there, asked before Spark is: its own answer is a stack trace.

Java is looked for where Spark's launcher looks: `JAVA_HOME`, then `java` on PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from recovery.errors import SparkUnavailable

OLDEST_JAVA = 17
"""What Spark 4 needs."""
INSTALL_JAVA = "install one with `apt install openjdk-17-jre-headless`, or set JAVA_HOME to one that is there"
INSTALL_PYSPARK = "pip install 'recovery-workers[spark]'"


def check(master: str = "") -> None:
    """Raise SparkUnavailable, which tells what to install, unless PySpark and a Java for it are there. A driver that
    runs elsewhere, as with Spark Connect, needs none here."""
    if find_spec("pyspark") is None:
        raise SparkUnavailable(f"a sweep runs in Spark, and PySpark is not installed: {INSTALL_PYSPARK}")
    if master.startswith("sc://"):
        return
    java, origin = _find()
    version = _version(java)
    if version is None:
        raise SparkUnavailable(f"{java} ({origin}) does not tell its version: {INSTALL_JAVA}")
    if version < OLDEST_JAVA:
        raise SparkUnavailable(
            f"{java} ({origin}) is Java {version}, and Spark needs {OLDEST_JAVA} or newer: {INSTALL_JAVA}"
        )


def _find() -> tuple[str, str]:
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not os.access(java, os.X_OK):
            raise SparkUnavailable(f"JAVA_HOME={home}: there is no bin/java in it; unset it, or {INSTALL_JAVA}")
        return str(java), "from JAVA_HOME"
    found = shutil.which("java")
    if found is None:
        raise SparkUnavailable(f"a sweep runs in Spark, which needs Java {OLDEST_JAVA} or newer: {INSTALL_JAVA}")
    return found, "from PATH"


def _version(java: str) -> int | None:
    """Java's feature version: 8 of `1.8.0_202`, 17 of `17.0.15`, 25 of `25-ea`."""
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(found[1]) if found else None
