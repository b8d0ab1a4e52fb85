"""A cluster on guarded servers to which all sorts of things happen, and what can be read of it afterwards."""

from __future__ import annotations

import io
import logging
import os
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch
from urllib.parse import quote

from recovery.cli.main import execute
from recovery.settings import load
from recovery.stack import Stack
from recovery.stack.child import ChildProcess
from recovery.stack.server_process import HOST, free_port
from tests.cli.command import ROOT, Done, environment, recovery
from tests.cli.every import COMMANDS, make_world
from tests.guarded.authority import Pair
from tests.guarded.marks import key, password
from tests.guarded.places import ProcessList, files, of_mongodb
from tests.guarded.servers import ADMIN, DATABASE, Servers
from tests.preloaded.process import NEVER
from tests.waiting import wait_until

APP = "tests.guarded.app:app"
NOT_CRASH = "blab,blabbing,broken,double,refuse,twice"
"""Queues of a worker whose tasks are threads: one that kills its process kills the worker."""
BOTH = ((), ("--json",))
LOOKED_AT = ("status", "doctor", "show", "find", "audit", "operation show", "broken show", "actor show")
"""Commands that are tried as they speak to people and to programs; the others in turn."""
OF_AN_APPLICATION = ("start", "run")
"""They load one, whose settings are those of the process: they are run in one of their own."""


class Cluster:
    """Workers and a beat, each as its own user, and whoever asks them for something."""

    def __init__(self, servers: Servers, folder: Path) -> None:
        self.servers, self.folder = servers, folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        good = servers.environment(ADMIN)
        self.stack = Stack(folder, mongo_uri=good["RECOVERY_MONGO_URI"], broker_url=good["RECOVERY_BROKER_URL"])
        self.marks = [*servers.marks.values(), password("wrong"), key("short")]
        self.wrong, self.short = self.marks[-2:]
        self.said: dict[str, bytes] = {}
        """{what was run: what it said}."""
        self.processes = ProcessList()
        self.processes.start()
        self.port = free_port()
        self.prefork = self._worker("prefork", "prefork", "debug", RECOVERY_METRICS_PORT=str(self.port))
        self.threads = self._worker("threads", "threads", "info", queues=NOT_CRASH)
        self.beat = self._beat("beat")
        wrong = servers.mongo_uri("worker", secret=self.wrong)
        self.refused = self._worker("refused", "prefork", "debug", RECOVERY_MONGO_URI=wrong)
        self.lost = self._beat("lost beat", servers.broker_url("beat", secret=self.wrong))

    def environment(self, user: str, **more: str) -> dict[str, str]:
        own = {"RECOVERY_APP": APP, "TMPDIR": str(self.temporary), "RECOVERY_SCAN_INTERVAL": "0.3", "COLUMNS": "300"}
        own["SPANS"] = str(self.temporary / "spans")
        return self.servers.environment(user, **own, PYTHONPATH=str(ROOT), **more)

    def run(self, user: str, *arguments: str) -> Done:
        """A command as this user, in a process of its own."""
        done = recovery(*arguments, env=self.environment(user))
        self.said[f"recovery {' '.join(arguments)}, by {user}"] = (done.stdout + done.stderr).encode()
        return done

    def here(self, user: str, *arguments: str, **changes: str) -> int:
        """A command as this user in this process, with all that the drivers log: it costs a tenth of one of its own."""
        told, name = io.StringIO(), f"recovery {' '.join(arguments)}, by {user} with {list(changes)}"
        root, level = logging.getLogger(), logging.getLogger().level
        root.setLevel(logging.DEBUG)
        try:
            with (
                patch.object(root, "handlers", [logging.StreamHandler(told)]),
                patch.dict(os.environ, self.environment(user) | changes),
                redirect_stdout(told),
                redirect_stderr(told),
            ):
                return execute(arguments)
        except SystemExit as end:
            return int(end.code or 0)
        finally:
            root.setLevel(level)
            self.said[f"{len(self.said)}: {name}"] = told.getvalue().encode()

    def places(self) -> dict[str, bytes]:
        """All that somebody may read by now."""
        places = {f"said by {name}": text for name, text in self.said.items()}
        for folder in (self.folder / "logs", self.servers.folder / "logs", self.temporary):
            places |= {f"file {folder.name}/{name}": text for name, text in files(folder)}
        places |= {f"Redis {name}": text for name, text in files(self.servers.valkey.directory)}
        with self.servers.admin() as client:
            places |= dict(of_mongodb(client))
        return places | {"process list": self.processes.text()}

    def stop(self) -> None:
        self.stack.kill_workers()
        self.processes.stop()

    def work(self) -> None:
        """Processes that end well and badly, and a pool process that dies."""
        started = self.run("client", "start", "twice", "21", "--wait", "30")
        assert started.stdout.splitlines()[-1] == "84", (started, self.prefork.last_lines(30))
        broken = self.run("client", "start", "broken", "no luck", "--wait", "30")
        assert broken.returncode == 1 and "no luck" in broken.stderr, broken
        crashing = self.run("client", "start", "crashing", f'"{self.folder / "once"}"', "--wait", "30")
        assert crashing.stdout.splitlines()[-1] == '"went on"', crashing
        for process in (started.stdout.split()[0], broken.stdout.split()[0]):
            self.run("reader", "show", process)
            self.run("reader", "show", process, "--json")
        with urllib.request.urlopen(f"http://{HOST}:{self.port}/metrics") as metrics:
            self.said["metrics"] = metrics.read()

    def ask(self) -> None:
        """Every command there is."""
        make_world(
            load(mongo_uri=self.servers.mongo_uri(ADMIN), broker_url=self.servers.broker_url(ADMIN), database=DATABASE)
        )
        for number, (command, line) in enumerate(COMMANDS.items()):
            if command in OF_AN_APPLICATION:
                continue
            for more in BOTH if command in LOOKED_AT else (BOTH[number % 2],):
                assert self.here("operator", *line, *more) in (0, 1, 2, 3), line
        self._program("celery report", "operator", "-m", "celery", "-A", "recovery.worker.app", "report")
        self._program("recovery doctor", "operator", "-m", "recovery", "doctor", "--json")

    def fail(self) -> None:
        """Wrong passwords, wrong addresses, wrong files, servers that are away: of commands, of workers, of a beat."""
        servers, away = self.servers, free_port()
        mongo, redis = servers.mongo_uri("operator"), servers.broker_url("operator")
        raw = servers.marks["operator"].text
        locked = Pair(servers.sweep.cert, servers.sweep.key, servers.sweep.both)
        bad: list[dict[str, str]] = [
            {"RECOVERY_MONGO_URI": servers.mongo_uri("operator", secret=self.wrong)},
            {"RECOVERY_BROKER_URL": servers.broker_url("operator", secret=self.wrong)},
            {"RECOVERY_MONGO_URI": servers.mongo_uri("operator", away)},
            {"RECOVERY_BROKER_URL": servers.broker_url("operator", away)},
            {"RECOVERY_MONGO_URI": f"mongodb://operator:{raw}@{HOST}/"},
            {"RECOVERY_BROKER_URL": f"redis://operator:{raw}@{HOST}/0"},
            {"RECOVERY_MONGO_URI": f"{mongo}&{quote(raw)}=1"},
            {"RECOVERY_MONGO_URI": f"{mongo}&maxPoolSize={quote(raw)}"},
            {"RECOVERY_BROKER_URL": f"{redis}&ssl_cert_reqs={quote(raw)}"},
            {"RECOVERY_MONGO_URI": servers.mongo_uri("operator", own=locked)},
            {"RECOVERY_MONGO_URI": servers.mongo_uri("operator", own=locked)
             + f"&tlsCertificateKeyFilePassword={self.wrong.encoded}"},
            {"RECOVERY_MONGO_URI": mongo.replace("mongodb://", "mongodb:/")},
            {"RECOVERY_MESSAGE_KEY": f"{self.short.text}!"},
            {"RECOVERY_METRICS_PORT": raw},
            {"RECOVERY_DATABASE": raw},
            {"RECOVERY_APP": mongo},
            {"RECOVERY_SPARK_MASTER": mongo},
            {"RECOVERY_HEARTBEAT_TIMEOUT": raw},
            {"RECOVERY_CONFIG": mongo},
            {"RECOVERY_CONFIG": str(self._file("bad.toml", f"mongo_uri = {raw}"))},
            {"RECOVERY_CONFIG": str(self._file("table.toml", f"[heartbeat_timeout]\npassword = '{raw}'"))},
            {"RECOVERY_CONFIG": str(self._file("unknown.toml", f"mongo_password = '{raw}'"))},
            {"RECOVERY_MONGO_PASSWORD": raw},
        ]  # fmt: skip
        names = ("recovery.cli.connection", "recovery.health.mongodb_server", "recovery.health.doctor")
        with ExitStack() as stack:
            for name in names[:2]:
                stack.enter_context(patch(f"{name}.ANSWER_TIMEOUT", 0.2))
            for env in bad:
                for command in ("status", "doctor"):
                    assert self.here("operator", command, **env) == 2, (command, list(env))
        assert self.refused.wait(60) and self.refused.exit_code == 2, self.refused.last_lines()
        wait_until(lambda: "Trying again" in self.log(self.lost), 30, "a word of a beat with a wrong password")

    def outage(self) -> None:
        """Both servers go away and come back; then a worker is killed, and another one ends in order."""
        seen = len(self.log(self.threads))
        self.servers.terminator.close()
        self.servers.mongod.kill()
        wait_until(lambda: " is away (" in self.log(self.threads)[seen:], 20, "a worker that misses Redis")
        self.servers.mongod.start()
        self.servers.terminator = self.servers.terminated(self.servers.terminator.port)
        done = self.run("client", "start", "twice", "4", "--wait", "60")
        assert done.stdout.splitlines()[-1] == "16", (done, self.threads.last_lines(30))
        os.kill(self.prefork.pid, signal.SIGABRT)
        assert self.prefork.wait(30)
        self.prefork.kill_group()
        self.beat.stop()

    def log(self, child: ChildProcess) -> str:
        return child.log.read_text(errors="replace")

    def _worker(self, name: str, pool: str, level: str, queues: str | None = None, **more: str) -> ChildProcess:
        """A worker whose log is of this level: `Stack` starts those of another."""
        command = [sys.executable, "-m", "recovery", "worker", "--app", APP, "--concurrency", "2"]
        command += ["--name", name, "--pool", pool, "--loglevel", level]
        command += ["--queues", queues] if queues else []
        env = {**_of_its_own(), "PYTHONUNBUFFERED": "1", **self.environment("worker", **more)}
        self.stack.workers.append(ChildProcess(name, command, self.stack.log(name), env=env))
        return self.stack.workers[-1]

    def _beat(self, name: str, broker_url: str | None = None) -> ChildProcess:
        """A beat that has its settings from a file."""
        env = self.environment("beat")
        if broker_url is not None:
            env["RECOVERY_BROKER_URL"] = broker_url
        names = ("RECOVERY_MONGO_URI", "RECOVERY_BROKER_URL", "RECOVERY_MESSAGE_KEY")
        lines = [f'{name.removeprefix("RECOVERY_").lower()} = "{env.pop(name)}"' for name in names]
        config = self._file(f"{name}.toml", "\n".join(lines))
        command = [sys.executable, "-m", "recovery", "beat", "--app", APP, "--loglevel", "debug"]
        env = {**_of_its_own(), "PYTHONUNBUFFERED": "1", **env, "RECOVERY_CONFIG": str(config)}
        self.stack.workers.append(ChildProcess(name, command, self.stack.log(name), env=env))
        return self.stack.workers[-1]

    def _file(self, name: str, text: str) -> Path:
        """A file for its user alone."""
        path = self.folder / name
        path.touch(0o600)
        path.write_text(text)
        return path

    def _program(self, name: str, user: str, *arguments: str) -> None:
        env = environment(self.environment(user))
        done = subprocess.run([sys.executable, *arguments], env=env, cwd=ROOT, capture_output=True, check=False)
        assert done.returncode in (0, 1), done
        self.said[name] = done.stdout + done.stderr


def _of_its_own() -> dict[str, str]:
    """The environment, without the folder of this process's metrics if it has made one; for a process that `ps` shows
    as users start it."""
    own = {name: value for name, value in environment().items() if not name.startswith("PROMETHEUS_")}
    return own | {NEVER: "1"}
