"""The same as the tests, with seeds that nobody knows, for as long as asked: `make soak MINUTES=60`.

Ends at the first failure, shows it as it was found, and says how to run it again: `make soak SEED=…`. That makes it
as small as it gets, which takes minutes; Hypothesis keeps it in `.hypothesis`, and tries it first from then on.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
import uuid
from pathlib import Path

from hypothesis import Phase
from hypothesis import seed as seeded
from hypothesis.stateful import run_state_machine_as_test

from recovery.settings import Settings, load
from recovery.stack import Stack
from recovery.store import Store, layout
from tests.documents import database_of
from tests.examples import examples
from tests.stateful.cluster import Cluster, held_still
from tests.stateful.kills import kill_again_and_again
from tests.stateful.machine import on

EXAMPLES, STEPS, KILLS = 60, 60, 10
"""Of each seed. Change them, and a seed that failed draws something else."""


def main() -> int:
    """Seed after seed until the time is up; or the one that is asked for."""
    asked = argparse.ArgumentParser(prog="make soak", description=__doc__)
    asked.add_argument("--minutes", type=float, default=10.0)
    asked.add_argument("--seed", type=int)
    arguments = asked.parse_args()
    until = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory(prefix="recovery-soak-") as folder, Stack(Path(folder) / "servers") as stack:
        database = f"soak_{uuid.uuid4().hex[:8]}"
        settings = load(mongo_uri=stack.mongo_uri, broker_url=stack.broker_url, database=database)
        layout.create(database_of(Store(settings)))
        while True:
            seed = random.getrandbits(32) if arguments.seed is None else arguments.seed
            if not _holds(settings, seed, small=arguments.seed is not None):
                return 1
            if arguments.seed is not None or time.monotonic() > until:
                return 0


def _holds(settings: Settings, seed: int, *, small: bool) -> bool:
    phases = tuple(Phase) if small else (Phase.generate,)
    drawn = examples(EXAMPLES, stateful_step_count=STEPS, phases=phases, report_multiple_bugs=False)
    began = time.monotonic()
    print(f"seed {seed}: {EXAMPLES} examples of {STEPS} steps, {KILLS} times killed … ", end="", flush=True)
    try:
        run_state_machine_as_test(seeded(seed)(on(settings)), settings=drawn)
        for place in range(KILLS):
            with held_still():
                kill_again_and_again(Cluster(settings), seed + place)
    except Exception:
        print(f"FAILED\n{traceback.format_exc()}\nRun it again: make soak SEED={seed}", flush=True)
        return False
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
