"""What is deployed: the wheel leaves the name `workers` to its users, and the thin folder of that name starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from hatchling.builders.wheel import WheelBuilder

from recovery import Recovery, Settings
from recovery.stack.child import ChildProcess
from tests.cli.command import ROOT, command, environment
from tests.waiting import wait_until

ORDERS = """
from recovery import Recovery
import workers

app = Recovery()


@app.process()
def order(item):
    return workers.pack(item)
"""
PACK = """
def pack(item):
    return f"{item} packed by our own workers"
"""


@pytest.mark.cluster
@pytest.mark.parametrize("own", ["workers.py", "workers/__init__.py"])
def test_a_project_may_have_workers_of_its_own(settings: Settings, tmp_path: Path, own: str) -> None:
    """Its modules stand before ours for whoever runs in its folder: a worker and a beat start all the same."""
    project = tmp_path / "shop"
    (project / own).parent.mkdir(parents=True)
    (project / own).write_text(PACK)
    (project / "orders.py").write_text(ORDERS)
    env = environment(settings.environment())
    children = [
        ChildProcess(part, command(part, "--app", "orders:app"), tmp_path / f"{part}.log", env=env, cwd=project)
        for part in ("worker", "beat")
    ]
    try:
        app = Recovery(settings)

        @app.process()
        def order(item: str) -> str:
            return item

        process_id = app.start(order, "ring")
        wait_until(
            lambda: (
                app.resources.store.processes.ended([process_id])[process_id].ended_at
                or not all(child.running for child in children)
            ),
            60,
            "the end of the process",
        )
        said = "\n".join(line for child in children for line in child.last_lines(20))
        assert all(child.running for child in children), said
        assert app.result(process_id, timeout=0) == "ring packed by our own workers"
    finally:
        for child in children:
            child.kill_group()


def test_the_wheel_holds_nothing_but_the_library() -> None:
    files = [found.distribution_path for found in WheelBuilder(str(ROOT)).recurse_included_files()]
    assert "recovery/worker/app.py" in files and "recovery/py.typed" in files
    assert [path for path in files if not path.startswith("recovery/")] == []


def test_celery_finds_the_application_in_the_folder(settings: Settings) -> None:
    """`celery -A workers.app`, from the folder's parent."""
    env = environment(settings.environment() | {"RECOVERY_APP": "tests.cli.shop:app"})
    told = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "workers.app", "report"],
        env=env, cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "QuietScheduler" in told.stdout, told.stderr


@pytest.mark.parametrize(
    ("module", "options", "said"),
    [
        ("workers.app", ["--queues", "nobody"], "no actor is named 'nobody'"),
        ("workers.app", ["--name", "a@b"], "--name 'a@b': must be a word"),
        ("workers.sweep", ["--concurrency", "0"], "'--concurrency'"),
    ],
)
def test_the_folder_starts_a_worker_with_the_checks_of_the_command(
    settings: Settings, module: str, options: list[str], said: str
) -> None:
    env = environment(settings.environment() | {"RECOVERY_APP": "tests.cli.shop:app"})
    line = [sys.executable, "-m", module, *options]
    told = subprocess.run(line, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (told.returncode, told.stdout) == (2, "")
    assert said in told.stderr


@pytest.mark.spark
@pytest.mark.soak
def test_spark_submit_takes_the_sweep(settings: Settings, tmp_path: Path) -> None:
    """From any folder, with Spark's own script. Nothing is lost yet, so it finds nothing."""
    submit = Path(sys.executable).parent / "spark-submit"
    home = str(Path(pyspark.__file__).parent)  # named, since Spark's script finds none in a folder with a space in it
    spark = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": home}
    env = environment(settings.environment() | spark)
    quiet = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    options = [
        "--master",
        "local[1]",
        *(part for name, value in quiet.items() for part in ("--conf", f"{name}={value}")),
    ]
    sweep = [str(submit), *options, str(ROOT / "workers" / "sweep.py"), "--json"]
    told = subprocess.run(sweep, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert told.returncode == 0, told.stdout + told.stderr
    assert json.loads(told.stdout)["processes"] == 0
