"""The Spark that operations run in: the caller's if there is one, otherwise our own. The only module that starts Spark.

The caller's is an existing context, or the JVM of spark-submit, whose options then replace our settings. With Spark
Connect it is a session whose driver runs elsewhere, and this machine needs no Java.

Our own Spark is:

- quiet: no web page, no progress bar, no terminal output. Spark's output is reported only if it does not start.
- local: it listens on the loopback address, unless the master is a cluster.
- temporary: the JVM ends with the block that started it.

Other configuration, as a cluster may need it, belongs in `spark-defaults.conf` in SPARK_CONF_DIR, as for any Spark
program.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession, SQLContext

import recovery
from recovery.errors import SparkUnavailable
from recovery.metrics_folder import FOLDER_PREFIX, MULTIPROC_DIR
from recovery.settings import Settings

LOOPBACK = "127.0.0.1"
TRIES = 4
"""Maximum attempts at a range. Clusters have this default, local masters have one attempt. In each attempt a range
waits up to 20 s for an unavailable MongoDB."""

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Environment variable in which spark-submit passes the port of its JVM. We did not start that JVM, so we do not end
it."""

CONNECT = "sc://"
CONNECT_PORT = 15002
CONNECT_NEEDS = ("grpc", "grpc_status", "pandas")
INSTALL_CONNECT = "pip install 'pyspark[connect]'"
ANSWER_TIMEOUT = 5.0
"""Seconds to wait for a connection to a server."""
_one_at_a_time = threading.Lock()
"""Held while Spark starts. If two threads start it at once, the second uses the first one's context."""


@contextmanager
def spark(settings: Settings) -> Iterator[SparkContext | SparkSession]:
    """Yield what runs jobs: a context, or a session of Spark Connect. Raises SparkUnavailable."""
    if settings.spark_master.startswith(CONNECT):
        with connected_session(settings.spark_master) as session:
            yield session
        return
    context, end = _context(settings)
    try:
        yield context
    finally:
        end()


def _context(settings: Settings) -> tuple[SparkContext, Callable[[], None]]:
    """Return a context, and the function that ends it."""
    with _one_at_a_time:
        existing = SparkContext._active_spark_context
        if existing is not None and _runs(existing):
            return existing, lambda: None
        _forget(existing)
        if SUBMITTED in os.environ:
            with _our_python(force=False):
                submitted = SparkContext()
            return submitted, submitted.stop
        check_master(settings.spark_master)
        with tempfile.TemporaryFile() as output:
            return _started(settings, output)


def is_alive(cluster: SparkContext | SparkSession) -> bool:
    """Return whether jobs can run: the JVM or the Spark Connect server may have ended."""
    return _runs(cluster) if isinstance(cluster, SparkContext) else _knows_session(cluster)


def _runs(context: SparkContext) -> bool:
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def configuration(settings: Settings, counted: str | None = None) -> SparkConf:
    """Return Spark's configuration. `counted`: folder for the metric files of executors on this machine, if there are
    any."""
    conf = SparkConf(loadDefaults=False)
    conf.setAppName("recovery sweep").setMaster(_master(settings.spark_master))
    conf.set("spark.driver.memory", settings.spark_memory)
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.log.level", "ERROR")
    # The JVM only distributes tasks. Optimising its code would take longer than a short job could gain.
    conf.set("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    if is_local(settings):
        conf.set("spark.driver.host", LOOPBACK).set("spark.driver.bindAddress", LOOPBACK)
        # Executors import this package, even if it is not installed.
        conf.setExecutorEnv("PYTHONPATH", str(Path(recovery.__file__).parents[1]))
        if counted is not None:
            # A separate folder, because executors' counts are carried to the driver. In the driver's folder they would
            # count twice.
            conf.setExecutorEnv(MULTIPROC_DIR, counted)
    return conf


def check_master(master: str) -> None:
    """Raise SparkUnavailable if none of these standalone masters accepts a connection. Spark itself would try for a
    minute. Other kinds of masters are not checked."""
    if not master.startswith("spark://"):
        return
    if not any(answers(address) for address in master.removeprefix("spark://").split(",")):
        raise SparkUnavailable(
            f"the Spark master at RECOVERY_SPARK_MASTER={master} does not answer: check that it runs, and that this "
            "machine reaches it; `local[*]` needs none"
        )


def is_local(settings: Settings) -> bool:
    """Return whether the executors are threads of the driver's JVM on this machine."""
    return settings.spark_master.startswith("local")


def _master(master: str) -> str:
    """Return a local master with retries: `local[2]` → `local[2,4]`. Other masters are returned unchanged."""
    if master == "local":
        return f"local[1,{TRIES}]"
    if master.startswith("local[") and "," not in master:
        return f"{master[:-1]},{TRIES}]"
    return master


def _started(settings: Settings, output: IO[bytes]) -> tuple[SparkContext, Callable[[], None]]:
    if MULTIPROC_DIR not in os.environ or not is_local(settings):
        context = _start(configuration(settings), settings, output)
        return context, lambda: _stop(context)
    counted = tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")
    try:
        context = _start(configuration(settings, counted), settings, output)
    except BaseException:
        shutil.rmtree(counted, ignore_errors=True)
        raise

    def end() -> None:
        _stop(context)
        shutil.rmtree(counted, ignore_errors=True)

    return context, end


def _start(conf: SparkConf, settings: Settings, output: IO[bytes]) -> SparkContext:
    try:
        with _our_python(force=is_local(settings)):
            gateway = launch_gateway(conf, {"stdout": output, "stderr": output})
            try:
                return SparkContext(conf=conf, gateway=gateway)
            except BaseException:
                _end_gateway()
                raise
    except (PySparkException, Py4JError, OSError) as error:
        output.seek(0)
        message = output.read().decode(errors="replace").strip() or str(error)
        raise SparkUnavailable(
            f"Spark does not start with RECOVERY_SPARK_MASTER={settings.spark_master} and "
            f"RECOVERY_SPARK_MEMORY={settings.spark_memory}: {without_frames(message)[-1000:]}"
        ) from None


def without_frames(told: str) -> str:
    """Return Java's error message without its stack frames. Otherwise the frames would fill the error, whose length is
    limited."""
    lines = (line for line in told.splitlines() if not re.match(r"\s+(at \S+\(|\.\.\. \d+ more)", line))
    return "\n".join(lines).strip()


def _stop(context: SparkContext) -> None:
    try:
        with suppress(Py4JError, OSError), warnings.catch_warnings(action="ignore"):
            context.stop()
    finally:
        _forget(context)
        _end_gateway()


def _forget(context: SparkContext | None) -> None:
    """Make PySpark forget a context.

    PySpark keeps the first context of a process. If its JVM has ended, `stop` fails before it would be forgotten.
    """
    if context is not None:
        context._jsc = None
        if context._accumulatorServer is not None:
            context._accumulatorServer.shutdown()
            context._accumulatorServer = None
    with SparkContext._lock:
        SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None


def _end_gateway() -> None:
    """End the JVM. Otherwise PySpark keeps it until Python exits; it has no public function for this."""
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is None:
        return
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    process = gateway.proc
    process.stdin.close()  # the JVM ends when its input is closed
    try:
        process.wait(10)
    except Exception:  # it did not end, or can't be waited for; it must be killed in both cases
        process.kill()
        process.wait()


@contextmanager
def _our_python(*, force: bool) -> Iterator[None]:
    """Make executors run this Python interpreter. PySpark reads it from the environment when a context is created."""
    previous = os.environ.get("PYSPARK_PYTHON")
    if force or previous is None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        if previous is None:
            os.environ.pop("PYSPARK_PYTHON", None)
        else:
            os.environ["PYSPARK_PYTHON"] = previous


def _knows_session(session: SparkSession) -> bool:
    """Return whether the server answers, and knew the session at its last answer. A restarted server does not know
    it."""
    return not session.is_stopped and answers(session.client._builder.endpoint, CONNECT_PORT)


@contextmanager
def connected_session(url: str) -> Iterator[SparkSession]:
    """Yield a new session of Spark Connect at `sc://HOST:PORT/;options`. Raises SparkUnavailable."""
    missing = [name for name in CONNECT_NEEDS if find_spec(name) is None]
    if missing:
        raise SparkUnavailable(f"RECOVERY_SPARK_MASTER=sc://... needs {' and '.join(missing)}: {INSTALL_CONNECT}")
    address = urlsplit(url).netloc
    if not answers(address, CONNECT_PORT):
        raise SparkUnavailable(
            f"the Spark Connect server at {address} does not answer: check that it runs, and that this machine "
            "reaches it"
        )
    try:
        session = SparkSession.builder.remote(url).create()
    except (PySparkException, ValueError) as error:
        raise SparkUnavailable(f"the Spark Connect server at {address} does not create a session: {error}") from None
    try:
        yield session
    finally:
        with suppress(Exception):  # the server is unavailable; the session ends there by itself
            session.stop()


def answers(address: str, port: int = 7077) -> bool:
    """Return whether a server listens at `host:port`. `port` is the default if the address has none."""
    host, separator, port_text = address.rpartition(":")
    if not separator or not port_text.isdecimal():
        host, port_text = address, str(port)
    try:
        with socket.create_connection((host.strip("[]"), int(port_text)), ANSWER_TIMEOUT):
            return True
    except (OSError, OverflowError):
        return False
