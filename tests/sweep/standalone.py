"""A standalone cluster of Spark on this machine, from PySpark's own classes: a master, and workers of one core each."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pyspark

from recovery.stack.child import ChildProcess
from recovery.stack.server_process import free_port
from recovery.sweep.session import answers
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
EXECUTOR = "CoarseGrainedExecutorBackend"


class Standalone:
    """The cluster. `settings.spark_master` is `url`, and whoever drives it has `environment`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        conf = folder / "conf"
        conf.mkdir(parents=True)
        (conf / "spark-defaults.conf").write_text(
            "spark.executor.memory 512m\nspark.executor.cores 1\nspark.driver.host 127.0.0.1\n"
        )
        self.environment = {
            "SPARK_CONF_DIR": str(conf),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            # A worker that is gone is noticed by its closed connection; these are for the memory of the JVMs.
            "SPARK_DAEMON_MEMORY": "128m",
        }
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self._children: list[ChildProcess] = []
        self._start("Master", "master.Master", "--port", str(self.port), "--webui-port", str(free_port()))
        wait_until(lambda: answers(f"127.0.0.1:{self.port}"), 60, "the Spark master")

    def worker(self) -> ChildProcess:
        """Start a worker of one core; it takes up its work when it is registered."""
        options = ("--cores", "1", "--memory", "512m", "--webui-port", str(free_port()), self.url)
        return self._start(f"Worker{len(self._children)}", "worker.Worker", *options)

    def executors(self) -> list[psutil.Process]:
        """Processes of executors that run now."""
        return [
            process
            for child in self._children
            if child.running
            for process in psutil.Process(child.pid).children(recursive=True)
            if process.status() != psutil.STATUS_ZOMBIE and any(EXECUTOR in one for one in process.cmdline())
        ]

    def stop(self) -> None:
        for child in self._children:
            child.kill_group()

    def _start(self, name: str, what: str, *options: str) -> ChildProcess:
        command = [str(SPARK_CLASS), f"{DEPLOY}.{what}", "--host", "127.0.0.1", *options]
        work = self._folder / name
        work.mkdir()
        env = {**os.environ, **self.environment, "SPARK_WORKER_DIR": str(work)}
        child = ChildProcess(name, command, self._folder / f"{name}.log", env=env, cwd=work)
        self._children.append(child)
        return child


class ConnectServer:
    """A server of Spark Connect, whose own master is local."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"sc://127.0.0.1:{self.port}"
        submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
        options = ("--master", "local[2]", "--conf", f"spark.connect.grpc.binding.port={self.port}")
        command = [str(submit), "--class", CONNECT_SERVER, *options, "spark-internal"]
        env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": _path(), "PYSPARK_PYTHON": sys.executable}
        self._child = ChildProcess("connect", command, folder / "connect.log", env=env, cwd=folder)
        wait_until(lambda: answers(f"127.0.0.1:{self.port}"), 90, "the Spark Connect server")

    def stop(self) -> None:
        self._child.kill_group()


def _path() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
