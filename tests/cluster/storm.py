"""Workflows under way while something breaks, and the proof that nothing was lost: the actors' own ledger tells."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import redis
from pymongo import MongoClient

from recovery import Settings
from recovery.demo import ledger
from recovery.demo.app import APP
from recovery.demo.audit import RunRecord, audit
from recovery.engine import Resources
from recovery.records import ProcessState
from recovery.stack import ChildProcess, Stack
from recovery.store.views.overview import Overview
from recovery.wfformat import Workflow, WorkflowTask, example_path, load, workload
from tests.documents import database_of
from tests.waiting import wait_until

PROCESSES = 6
"""As many as two workers are busy with while a server goes and comes back."""

QUICK: Mapping[str, Any] = {
    "heartbeat_interval": 0.5,
    "heartbeat_timeout": 1.5,
    "message_timeout": 2.0,
    "idle_timeout": 3.0,
    "apply_timeout": 1.0,
    "scan_interval": 0.5,
    "shutdown_grace": 1.0,
}
"""A quarter of the defaults or less: what takes a minute there is seen in seconds."""


class Storm:
    """Workers, beats and processes of one test, on its own database."""

    def __init__(self, stack: Stack, settings: Settings, folder: Path) -> None:
        self.stack = stack
        self.settings = settings.model_copy(update=QUICK)
        self.resources = Resources.connect(self.settings)
        self.runs: list[workload.Run] = []
        self.children: list[ChildProcess] = []
        self.workflow: Workflow = load(example_path())
        self._ledger = folder / f"ledger-{uuid.uuid4().hex[:8]}.jsonl"
        self._lines: list[ledger.Line] = []
        self._reader = ledger.Reader(self._ledger)
        # Not the resources' client: a test looks at a database that is away, and must not wait for it.
        self.database: Any = MongoClient(self.settings.mongo_uri)[self.settings.database]

    def hire(self, workers: int = 2, beats: int = 1, env: Mapping[str, str] = {}, **options: Any) -> list[ChildProcess]:
        """Start workers and beats; once this returns, all workers have told that they live."""
        for _ in range(beats):
            self.children.append(self.stack.start_beat(APP, env={**self.settings.environment(), **env}))
        hired = [self.worker(env=env, **options) for _ in range(workers)]
        told = self.database["workers"]
        wait_until(lambda: {one["pid"] for one in told.find()} >= {one.pid for one in hired}, 30, "workers")
        return hired

    def worker(
        self, *, concurrency: int = 2, pool: str | None = None, env: Mapping[str, str] = {}, **changes: Any
    ) -> ChildProcess:
        """A worker; it may not be ready yet. `changes` are of its settings."""
        settings = self.settings.model_copy(update=changes)
        variables = {**settings.environment(), ledger.VARIABLE: str(self._ledger), **env}
        child = self.stack.start_worker(APP, concurrency=concurrency, pool=pool, env=variables)
        self.children.append(child)
        return child

    def end(self) -> None:
        """Kill all workers and beats, and say so if one had ended by itself."""
        ended = [child for child in self.children if not child.running]
        for child in self.children:
            child.kill_group()
        assert not ended, "\n".join(ended[0].last_lines(30))

    def kill(self, child: ChildProcess) -> None:
        """Kill a worker or beat with all its processes."""
        self.children.remove(child)
        child.kill_group()

    def start(self, processes: int, *, time_scale: float = 0.05) -> None:
        """Start processes; at 0.05 each takes some two seconds where there is room."""
        self.runs += workload.start(self.resources, [self.workflow], processes, time_scale)

    def start_tiny(self, processes: int) -> None:
        """Start processes of one task and one that collects, and lose their messages."""
        self.workflow = Workflow("tiny", Path(), (WorkflowTask("only", (), (), 0.0),))
        self.start(processes)
        self.lose_messages()

    def lose_messages(self) -> None:
        with redis.Redis.from_url(self.settings.broker_url) as broker:
            broker.flushdb()

    def claim_all(self, worker: str) -> int:
        """Make it so that all that is queued was claimed by this worker, long ago; how many were queued."""
        long_ago = {"$subtract": ["$$NOW", 60_000]}
        claim = {"state": "working", "worker": f"{worker}#1", "claimedAt": long_ago, "recoveryTime": long_ago}
        return int(self.database["decisions"].update_many({"state": "queued"}, [{"$set": claim}]).modified_count)

    def lines(self) -> list[ledger.Line]:
        """What the actors have written so far."""
        self._lines += self._reader.new_lines()
        return self._lines

    def wait_lines(self, more: int, timeout: float = 30) -> None:
        """Wait until the actors have written so many lines more."""
        wanted = len(self.lines()) + more
        wait_until(lambda: len(self.lines()) >= wanted, timeout, f"{more} more executions")

    def ended(self) -> bool:
        workload.look(self.resources, [run for run in self.runs if not run.ended])
        return all(run.ended for run in self.runs)

    def check(self, timeout: float = 40) -> None:
        """Wait for all ends; then: nothing lost, nothing accepted twice, and everything comes to rest."""
        wait_until(self.ended, timeout, "the end of all processes")
        assert {run.state for run in self.runs} == {ProcessState.FINISHED}, [run.error for run in self.runs]
        workload.look(self.resources, self.runs)  # a second end would replace the first one's result
        workload.look_at_values(self.resources, self.runs)
        found = audit(self.lines(), map(RunRecord.of, self.runs))
        assert (found.lost, found.accepted_twice) == ({}, {})
        without = Overview(database_of(self.resources.store)).without_deadline()
        assert not any(without.values()), without
        live = {"recoveryTime": {"$exists": True}}
        kinds = ("processes", "decisions", "graphs")
        wait_until(lambda: not any(self.database[kind].count_documents(live) for kind in kinds), 20, "rest")

    @property
    def tasks(self) -> int:
        """Executions of an undisturbed run: one of each task, and one that collects."""
        return len(self.runs) * (len(self.workflow.tasks) + 1)

    def timeouts(self) -> int:
        """Attempts that were given up: their worker lost, or their time over."""
        found = self.database["decisions"].aggregate([{"$group": {"_id": None, "all": {"$sum": "$timeouts"}}}])
        return sum(one["all"] for one in found)

    def logged(self, *words: str) -> str:
        """The lines of all workers' logs in which one of these words stands: why a test fails."""
        lines = (line for child in self.children for line in child.log.read_text().splitlines())
        return "\n".join(line for line in lines if any(word in line for word in words))
