"""Files of an application that have the name of a module that somebody else imports."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from recovery.installed import OURS, advice, shadowing
from tests.cli.command import environment, recovery


def test_files_and_packages_with_the_name_of_a_module_are_found(tmp_path: Path) -> None:
    for name in ("redis.py", "queue.py", "orders.py", "celery.txt", "sys.py"):
        (tmp_path / name).touch()
    for name in ("kombu", "billiard", "logging.py"):
        (tmp_path / name).mkdir()
    (tmp_path / "kombu" / "__init__.py").touch()
    assert [path.name for path in shadowing(tmp_path)] == ["kombu", "queue.py", "redis.py"]
    assert advice(tmp_path / "orders.py") == "" == advice(tmp_path / "none")


def test_all_packages_that_we_need_are_known() -> None:
    texts = [text for text in requires("recovery-workers") or () if "extra ==" not in text]
    needed = {canonicalize_name(Requirement(text).name) for text in texts}
    modules = {
        module
        for module, distributions in packages_distributions().items()
        if needed & {canonicalize_name(one) for one in distributions} and not module.startswith("_")
    }
    assert modules and modules <= OURS


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["redis", "queue"])
def test_a_worker_that_imports_another_file_names_it(tmp_path: Path, name: str) -> None:
    (tmp_path / f"{name}.py").write_text("mine = 1\n")
    (tmp_path / "shop.py").write_text("from recovery import Recovery\napp = Recovery()\n")
    run = recovery("worker", env={"RECOVERY_APP": "shop:app"}, cwd=tmp_path)
    assert run.returncode and f"{tmp_path} has {name}.py, imported in the place of Python modules" in run.stderr


def test_an_application_that_fails_for_it_names_it(tmp_path: Path) -> None:
    (tmp_path / "statistics.py").write_text("mine = 1\n")
    (tmp_path / "shop.py").write_text("from statistics import mean\n")
    code = "from recovery.engine import load_app; load_app('shop:app')"
    run = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment(), cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (
        f"cannot import name 'mean' from 'statistics' ({tmp_path}/statistics.py). {tmp_path} has statistics.py, "
        in run.stderr
    )
