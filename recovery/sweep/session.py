"""A Spark of our own for one job, or the caller's if there is one: a context that is there, or the JVM of spark-submit,
whose options then stand for our settings. The only module that starts Spark.

Quiet: no web page, no progress bar, nothing on the terminal; what Spark wrote is told only if it does not
start. Local: it listens on the loopback address, unless the master is a cluster. Gone afterwards: the JVM
ends with the job, since an idle one would keep its memory as long as the worker lives.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway

import recovery
from recovery.errors import SparkUnavailable
from recovery.settings import Settings

LOOPBACK = "127.0.0.1"
TRIES = 4
"""How often a range is tried, as on a cluster; with a local master Spark's own default is once. A range whose
MongoDB went away waits for it up to 20 s each time."""

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Where its JVM listens, told by spark-submit to what it starts. That JVM is not ours to end."""

_one_at_a_time = threading.RLock()


@contextmanager
def spark(settings: Settings) -> Iterator[SparkContext]:
    """A context to run a job in. Raises SparkUnavailable if Spark does not start."""
    with _one_at_a_time:
        existing = SparkContext._active_spark_context
        if existing is not None:
            yield existing
            return
        if SUBMITTED in os.environ:
            with _our_python(force=False), SparkContext() as context:
                yield context
            return
        with tempfile.TemporaryFile() as words:
            context = _start(settings, words)
            try:
                yield context
            finally:
                _stop(context)


def configuration(settings: Settings) -> SparkConf:
    """How Spark is set up."""
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
    return conf


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


def _start(settings: Settings, words: IO[bytes]) -> SparkContext:
    conf = configuration(settings)
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
            f"RECOVERY_SPARK_MEMORY={settings.spark_memory}: {told[-1000:]}"
        ) from None


def _stop(context: SparkContext) -> None:
    with suppress(Py4JError, OSError):
        context.stop()
    _end_gateway()


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
