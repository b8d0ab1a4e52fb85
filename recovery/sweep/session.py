"""A Spark of our own, or the caller's if there is one: a context that is there, or the JVM of spark-submit, whose
options then stand for our settings. The only module that starts Spark.

A session of Spark Connect is another one: its driver runs elsewhere, and no Java is needed on this machine.

Quiet: no web page, no progress bar, nothing on the terminal; what Spark wrote is told only if it does not
start. Local: it listens on the loopback address, unless the master is a cluster. Gone afterwards: the JVM
ends with the block that it was started for. What else is to be set up, as a cluster needs it, stands in
`spark-defaults.conf` in SPARK_CONF_DIR, as for any other program of Spark's.
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
"""How often a range is tried, as on a cluster; with a local master Spark's own default is once. A range whose
MongoDB went away waits for it up to 20 s each time."""

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Where its JVM listens, told by spark-submit to what it starts. That JVM is not ours to end."""

CONNECT = "sc://"
CONNECT_PORT = 15002
CONNECT_NEEDS = ("grpc", "grpc_status", "pandas")
INSTALL_CONNECT = "pip install 'pyspark[connect]'"
ANSWER_TIMEOUT = 5.0
"""Seconds until a server has to have answered a connection."""
_one_at_a_time = threading.Lock()
"""Of two who start at once the second uses what the first has started."""


@contextmanager
def spark(settings: Settings) -> Iterator[SparkContext | SparkSession]:
    """What jobs are run in: a context, or a session of Spark Connect. Raises SparkUnavailable if there is none."""
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
    """A context, and how it is ended by who got it."""
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
        with tempfile.TemporaryFile() as words:
            return _started(settings, words)


def is_alive(cluster: SparkContext | SparkSession) -> bool:
    """Whether jobs can be run in it: its JVM may have ended, or the server of Spark Connect."""
    return _runs(cluster) if isinstance(cluster, SparkContext) else _knows_session(cluster)


def _runs(context: SparkContext) -> bool:
    try:
        return context._jsc is not None and not context._jsc.sc().isStopped()
    except (Py4JError, OSError):
        return False


def configuration(settings: Settings, counted: str | None = None) -> SparkConf:
    """How Spark is set up. `counted`: a folder for what executors on this machine count, if they keep files of it."""
    conf = SparkConf(loadDefaults=False)
    conf.setAppName("recovery sweep").setMaster(_master(settings.spark_master))
    conf.set("spark.driver.memory", settings.spark_memory)
    conf.set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.log.level", "ERROR")
    # The JVM only hands out tasks: compiling its code well costs more than a short job gets back.
    conf.set("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    if is_local(settings):
        conf.set("spark.driver.host", LOOPBACK).set("spark.driver.bindAddress", LOOPBACK)
        # This package, also where it is not installed.
        conf.setExecutorEnv("PYTHONPATH", str(Path(recovery.__file__).parents[1]))
        if counted is not None:
            # Not our own: what executors count is carried to the driver, and would be counted twice.
            conf.setExecutorEnv(MULTIPROC_DIR, counted)
    return conf


def check_master(master: str) -> None:
    """Raise SparkUnavailable unless one of these masters answers at all: Spark itself asks for a minute. Others than
    those of a standalone cluster are for Spark to find."""
    if not master.startswith("spark://"):
        return
    if not any(answers(address) for address in master.removeprefix("spark://").split(",")):
        raise SparkUnavailable(
            f"the Spark master at RECOVERY_SPARK_MASTER={master} does not answer: check that it runs, and that this "
            "machine reaches it; `local[*]` needs none"
        )


def is_local(settings: Settings) -> bool:
    """Whether the executors are threads of the driver's JVM on this machine."""
    return settings.spark_master.startswith("local")


def _master(master: str) -> str:
    """A local master with retries: `local[2]` → `local[2,4]`."""
    if master == "local":
        return f"local[1,{TRIES}]"
    if master.startswith("local[") and "," not in master:
        return f"{master[:-1]},{TRIES}]"
    return master


def _started(settings: Settings, words: IO[bytes]) -> tuple[SparkContext, Callable[[], None]]:
    if MULTIPROC_DIR not in os.environ or not is_local(settings):
        context = _start(configuration(settings), settings, words)
        return context, lambda: _stop(context)
    counted = tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-")
    try:
        context = _start(configuration(settings, counted), settings, words)
    except BaseException:
        shutil.rmtree(counted, ignore_errors=True)
        raise

    def end() -> None:
        _stop(context)
        shutil.rmtree(counted, ignore_errors=True)

    return context, end


def _start(conf: SparkConf, settings: Settings, words: IO[bytes]) -> SparkContext:
    try:
        with _our_python(force=is_local(settings)):
            gateway = launch_gateway(conf, {"stdout": words, "stderr": words})
            try:
                return SparkContext(conf=conf, gateway=gateway)
            except BaseException:
                _end_gateway()
                raise
    except (PySparkException, Py4JError, OSError) as error:
        words.seek(0)
        told = words.read().decode(errors="replace").strip() or str(error)
        raise SparkUnavailable(
            f"Spark does not start with RECOVERY_SPARK_MASTER={settings.spark_master} and "
            f"RECOVERY_SPARK_MEMORY={settings.spark_memory}: {without_frames(told)[-1000:]}"
        ) from None


def without_frames(told: str) -> str:
    """What Java says without where it says it: an error has no room for a stack, whose end tells nothing."""
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
    """Have PySpark forget a context that may have ended without it: it keeps to the first of a process, and `stop` of
    one whose JVM is gone does not come so far."""
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
    """End the JVM. PySpark leaves it running until Python ends, and it has no public way to say so."""
    gateway = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is None:
        return
    with suppress(Py4JError, OSError):
        gateway.shutdown()
    process = gateway.proc
    process.stdin.close()  # the JVM ends when its input does
    try:
        process.wait(10)
    except Exception:  # it does not end by itself, or can't be waited for: it must not stay either way
        process.kill()
        process.wait()


@contextmanager
def _our_python(*, force: bool) -> Iterator[None]:
    """Executors run this interpreter; PySpark takes its name from the environment, when a context is made."""
    before = os.environ.get("PYSPARK_PYTHON")
    if force or before is None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("PYSPARK_PYTHON", None)
        else:
            os.environ["PYSPARK_PYTHON"] = before


def _knows_session(session: SparkSession) -> bool:
    """Whether its server is there, and knows the session, as far as the last answer said: one that was started again
    does not."""
    return not session.is_stopped and answers(session.client._builder.endpoint, CONNECT_PORT)


@contextmanager
def connected_session(url: str) -> Iterator[SparkSession]:
    """A session of Spark Connect of its own, at `sc://HOST:PORT/;options`. Raises SparkUnavailable."""
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
        made = SparkSession.builder.remote(url).create()
    except (PySparkException, ValueError) as error:
        raise SparkUnavailable(f"the Spark Connect server at {address} gives no session: {error}") from None
    try:
        yield made
    finally:
        with suppress(Exception):  # gone, or away: what it has there ends by itself
            made.stop()


def answers(address: str, port: int = 7077) -> bool:
    """Whether something listens at `host:port`; at `port` where none is given."""
    host, colon, given = address.rpartition(":")
    if not colon or not given.isdecimal():
        host, given = address, str(port)
    try:
        with socket.create_connection((host.strip("[]"), int(given)), ANSWER_TIMEOUT):
            return True
    except (OSError, OverflowError):
        return False
