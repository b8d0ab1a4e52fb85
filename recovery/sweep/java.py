"""Checks that Java and PySpark are installed. Spark's own error would be a stack trace.

Java is searched where Spark's launcher does: in `JAVA_HOME`, then as `java` on PATH.
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
"""Oldest Java version that Spark 4 supports."""
INSTALL_JAVA = "install one with `apt install openjdk-17-jre-headless`, or set JAVA_HOME to one that is there"
INSTALL_PYSPARK = "pip install 'recovery-workers[spark]'"


def check(master: str = "") -> None:
    """Raise SparkUnavailable, which says what to install, unless PySpark and a suitable Java are installed. With Spark
    Connect no Java is needed, because the driver runs elsewhere."""
    if find_spec("pyspark") is None:
        raise SparkUnavailable(f"a sweep runs in Spark, and PySpark is not installed: {INSTALL_PYSPARK}")
    if master.startswith("sc://"):
        return
    java, origin = _find()
    version = _version(java)
    if version is None:
        raise SparkUnavailable(f"{java} ({origin}) does not report its version: {INSTALL_JAVA}")
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
    path = shutil.which("java")
    if path is None:
        raise SparkUnavailable(f"a sweep runs in Spark, which needs Java {OLDEST_JAVA} or newer: {INSTALL_JAVA}")
    return path, "from PATH"


def _version(java: str) -> int | None:
    """Return Java's feature version: 8 for `1.8.0_202`, 17 for `17.0.15`, 25 for `25-ea`."""
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', output.stderr + output.stdout)
    return int(match[1]) if match else None
