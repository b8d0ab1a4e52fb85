"""The tests that the rows of docs/retry-sources.md name: in each of them an actor of a running application raises.

Such a test is outside of what it tests: neither its module nor a helper module of the tests that it imports has an
import of `recovery.retry`. Its source registers an actor that raises, and runs attempts.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.docs.blocks import DOCS

PAGE = DOCS / "retry-sources.md"
TABLES = {"Hive: replication retry": 29, "Couchbase: SDK RFC 49": 28}
"""{title: rows of its table, at least}."""
INSIDE = "recovery.retry"
REGISTERS = {"actor", "process"}
RUNS = {"pump", "bring_to_end", "run", "take_one"}
"""Methods of the test world that run attempts."""
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def cells_of_tests(page: str) -> Iterator[tuple[str, str]]:
    """Yield (point, what its row says of tests)."""
    for title, least in TABLES.items():
        section = page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
        rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
        assert rows[0] == ["Point", "Where", "Test"] and all(len(row) == 3 for row in rows), title
        assert len(rows) - 2 >= least, f"rows of {title}"
        yield from ((point, test) for point, _, test in rows[2:])


def faults(cell: str, root: Path) -> list[str]:
    """Return what is wrong with a row: tests that do not exist, else why none of its tests is as described above."""
    files = re.findall(r"`(tests/[\w/]+\.py)", cell)
    absent = [f"{path} does not exist" for path in files if not (root / path).is_file()]
    if absent:
        return absent
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", cell)
    absent = [f"{path} has no {name}" for path, name in named if name not in definitions(root / path)]
    if absent or not named:
        return absent or ["no test is named"]
    reasons = [why_not(root, path, name) for path, name in named]
    return [] if None in reasons else [reason for reason in reasons if reason is not None]


def why_not(root: Path, path: str, name: str) -> str | None:
    """Return why a test is none in which an actor of a running application raises; None if it is one."""
    if (inside := imports_from_inside(root, path)) is not None:
        return inside
    test = Used(definitions(root / path), name)
    actors = list(test.actors())
    if not actors:
        return f"{path}::{name} registers no actor"
    if not any(isinstance(node, ast.Raise) for node in test.walk(test.closure(actors))):
        return f"{path}::{name} has no actor that raises"
    if not any(isinstance(one.func, ast.Attribute) and one.func.attr in RUNS for one in test.calls()):
        return f"{path}::{name} runs nothing"
    return None


@cache
def definitions(path: Path) -> dict[str, ast.stmt]:
    """Return what a module defines: functions, classes and constants by their names."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (*_FUNCTION, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name: node for target in targets for name in names(target)}
    return found


def names(node: ast.AST) -> set[str]:
    """Return all names in some code, with those of parameters, which may be fixtures."""
    return {
        one.id if isinstance(one, ast.Name) else one.arg
        for one in ast.walk(node)
        if isinstance(one, ast.Name | ast.arg)
    }


class Used:
    """The code of a test, and of what it uses in its module."""

    def __init__(self, module: dict[str, ast.stmt], test: str) -> None:
        self._known: dict[str, list[ast.AST]] = defaultdict(list, {name: [node] for name, node in module.items()})
        self._code = self.closure([module[test]])
        self._known.clear()
        for node in self.walk(self._code):
            self._learn(node)

    def closure(self, nodes: Iterable[ast.AST]) -> list[ast.AST]:
        """Return this code with all that it names, and what that names."""
        found: list[ast.AST] = []
        remaining = list(nodes)
        while remaining:
            node = remaining.pop()
            if node not in found:
                found.append(node)
                remaining += [known for name in sorted(names(node)) for known in self._known.get(name, ())]
        return found

    @staticmethod
    def walk(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
        for node in nodes:
            yield from ast.walk(node)

    def calls(self) -> Iterator[ast.Call]:
        return (node for node in self.walk(self._code) if isinstance(node, ast.Call))

    def actors(self) -> Iterator[ast.AST]:
        """Yield what is registered: by `@app.actor(...)`, or by `app.process(...)(function)`."""
        for node in self.walk(self._code):
            if isinstance(node, _FUNCTION) and any(_registers(one) for one in node.decorator_list):
                yield node
            elif isinstance(node, ast.Call) and _registers(node.func):
                yield from node.args

    def _learn(self, node: ast.AST) -> None:
        """Note what a name stands for: a function, a class, a value, or an argument of a call."""
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._known[node.name].append(node)
                if not isinstance(node, ast.ClassDef):
                    self._learn_arguments(node)
            case ast.Assign(targets=targets, value=value):
                self._note(targets, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._note([target], value)
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                self._note([target], value)

    def _learn_arguments(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        parameters = [one.arg for one in [*function.args.posonlyargs, *function.args.args]]
        for call in self.calls():
            if isinstance(call.func, ast.Name) and call.func.id == function.name:
                for name, value in zip(parameters, call.args, strict=False):
                    self._known[name].append(value)
                for keyword in call.keywords:
                    self._known[keyword.arg or ""].append(keyword.value)

    def _note(self, targets: Iterable[ast.expr], value: ast.expr) -> None:
        for target in targets:
            for name in names(target):
                self._known[name].append(value)


def _registers(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in REGISTERS


@cache
def imports_from_inside(root: Path, path: str) -> str | None:
    """Return which module imports something of `recovery.retry`, of this one and the test modules that it imports."""
    seen, remaining = set[str](), [path]
    while remaining:
        one = remaining.pop()
        if one in seen or one.endswith("conftest.py"):
            continue
        seen.add(one)
        for name in imported(ast.parse((root / one).read_text(encoding="utf-8"))):
            if f"{name}.".startswith(f"{INSIDE}."):
                return f"{one} imports {name}"
            place = name.replace(".", "/")
            there = (f"{place}.py", f"{place}/__init__.py") if name.startswith("tests.") else ()
            remaining += [file for file in there if (root / file).is_file()]
    return None


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the full names of what a module imports, wherever it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
            yield f"{node.module}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str))
