"""Rules of the code that no linter knows. Which package may import which is held by import-linter."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(path for package in ("recovery", "workers") for path in (ROOT / package).rglob("*.py"))
LONGEST = 400

# {driver: {what may be imported of it: modules that may}}. A name stands for all below it.
DRIVERS: dict[str, dict[str, tuple[str, ...]]] = {
    "pymongo": {
        "pymongo": ("recovery.store", "recovery.stack.mongod"),
        # The steps and scanners know which errors are the database's.
        "pymongo.errors": ("recovery", "workers"),
        # Types only: the sweep's readers get their database from the store.
        "pymongo.database": ("recovery.sweep",),
    },
    "bson": {},
    "redis": {
        "redis": ("recovery.queue.broker", "recovery.stack.valkey"),
        "redis.exceptions": ("recovery", "workers"),
    },
    "celery": {"celery": ("recovery.queue.message", "workers")},
    "kombu": {"kombu": ("recovery.queue.message", "workers")},
    "billiard": {"billiard": ("workers",)},
    "pyspark": {"pyspark": ("recovery.sweep",)},
    "py4j": {"py4j": ("recovery.sweep",)},
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> Iterator[str]:
    """Full names of what a module imports, wherever in it; of `from a.b import c` it is `a.b`."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")


each_module = pytest.mark.parametrize("path", MODULES, ids=name_of)


def test_all_modules_are_looked_at() -> None:
    assert len(MODULES) > 80
    assert {"recovery", "recovery.rules.model", "workers.tasks"} <= {name_of(path) for path in MODULES}


@each_module
def test_a_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(tree(path))


@each_module
def test_a_module_is_not_two(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST


@each_module
def test_only_the_command_line_prints(path: Path) -> None:
    """Workers and libraries log. A worker that can't be configured says so before there is a log."""
    if any(within(name_of(path), talks) for talks in ("recovery.cli", "recovery.demo")):
        return
    calls = [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    printed = [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]
    to_stderr = [call for call in printed if any(keyword.arg == "file" for keyword in call.keywords)]
    assert printed == (to_stderr if name_of(path) == "workers.app" else [])


@each_module
def test_a_driver_is_imported_by_the_modules_made_for_it(path: Path) -> None:
    module = name_of(path)
    for what in imported(path):
        allowed = DRIVERS.get(what.partition(".")[0])
        if allowed is not None:
            who = [user for part, users in allowed.items() if within(what, part) for user in users]
            assert any(within(module, user) for user in who), f"{module} imports {what}; that may: {who}"


def test_a_package_tells_the_design_of_its_room() -> None:
    for path in MODULES:
        if path.name == "__init__.py" and path.parent.parent != ROOT:
            text = ast.get_docstring(tree(path)) or ""
            assert len(text.split()) >= 10, f"{name_of(path)}: {text!r}"
