"""Rules of the code that no linter knows. Which package may import which is held by import-linter."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import recovery
from recovery import errors

ROOT = Path(__file__).parent.parent
MODULES = sorted(path for package in ("recovery", "workers") for path in (ROOT / package).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
TEXTS = [path for folder in (".", "docs") for path in (ROOT / folder).glob("*.md")]
LONGEST = 400

# {driver: {what may be imported of it: modules that may}}. A name stands for all below it.
DRIVERS: dict[str, dict[str, tuple[str, ...]]] = {
    "pymongo": {"pymongo": ("recovery.store", "recovery.stack.servers", "recovery.stack.replica_set")},
    "bson": {
        "bson": ("recovery.store.raw_pages", "recovery.store.views.process_exports"),
        "bson.errors": ("recovery.store.driver_errors",),
        "bson.json_util": ("recovery.store.views.process_exports",),
    },
    "redis": {
        "redis": ("recovery.queue", "recovery.stack.servers"),
    },
    "celery": {"celery": ("recovery.queue.celery_app", "recovery.queue.remote", "recovery.worker")},
    "kombu": {
        "kombu": ("recovery.queue.message", "recovery.worker"),
        "kombu.exceptions": ("recovery.queue.remote",),
    },
    "billiard": {"billiard": ("recovery.worker",)},
    "pyspark": {"pyspark": ("recovery.sweep",)},
    "py4j": {"py4j": ("recovery.sweep",)},
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = frozenset(map(name_of, MODULES))


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


def exports() -> dict[str, str]:
    """{name that a package exports: the module that it is from}, in full."""
    return {
        f"{name_of(path)}.{alias.name}": f"{node.module}.{alias.name}" if is_module else node.module
        for path in MODULES
        if path.name == "__init__.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.module and within(node.module, name_of(path))
        for alias in node.names
        for is_module in [f"{node.module}.{alias.name}" in NAMES]
    }


def modules_imported(source: ast.Module, exported: Mapping[str, str]) -> set[str]:
    """Modules of ours that a source imports, wherever in it, and under TYPE_CHECKING too. What a package exports is
    imported from the module that has it."""
    found = set()
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for name in (f"{node.module}.{alias.name}" for alias in node.names):
                found.add(name if name in NAMES and name not in exported else exported.get(name, node.module))
    return found & NAMES


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that import one another, directly or by way of others: the strongly connected components."""
    order, low, path, found = dict[str, int](), dict[str, int](), list[str](), list[list[str]]()

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        path.append(name)
        for other in sorted(imports.get(name, ())):
            if other not in order:
                visit(other)
            if other in path:
                low[name] = min(low[name], low[other])
        if low[name] == order[name]:
            component = sorted(path[path.index(name) :])
            del path[path.index(name) :]
            if len(component) > 1:
                found.append(component)

    for name in imports:
        if name not in order:
            visit(name)
    return sorted(found)


def within(name: str, outer: str) -> bool:
    return name == outer or name.startswith(f"{outer}.")


def test_all_modules_are_looked_at() -> None:
    assert len(MODULES) > 80
    assert {"recovery", "recovery.rules.findings", "recovery.worker.celery_tasks"} <= {
        name_of(path) for path in MODULES
    }


def test_a_module_says_what_it_is_for() -> None:
    assert [name_of(path) for path in MODULES if not ast.get_docstring(tree(path))] == []


def test_a_package_tells_the_design_of_its_room() -> None:
    rooms = [path for path in MODULES if path.name == "__init__.py" and path.parent.parent != ROOT]
    assert [name_of(path) for path in rooms if len((ast.get_docstring(tree(path)) or "").split()) < 10] == []


def lines_without_docstrings(path: Path) -> int:
    """Return the number of a module's lines, without docstrings: a public method may need a long one."""
    docstrings = [
        node.value
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    documented = sum((text.end_lineno or text.lineno) - text.lineno + 1 for text in docstrings)
    return len(path.read_text(encoding="utf-8").splitlines()) - documented


def test_a_module_is_not_two() -> None:
    lengths = {name_of(path): lines_without_docstrings(path) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def assigned_names(module: ast.Module) -> Iterator[str]:
    """Names that the module's own statements assign or define."""
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            yield from (
                one.id for one in ast.walk(target) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
            )


def test_a_name_of_a_module_means_one_thing() -> None:
    """Of two constants of one name the second holds for all who use either."""
    counts = {path: Counter(assigned_names(tree(path))) for path in [*MODULES, *TESTS]}
    twice = [f"{name_of(path)}: {name}" for path, names in counts.items() for name, count in names.items() if count > 1]
    assert twice == []


def test_no_modules_import_one_another() -> None:
    """Within packages as well, and under TYPE_CHECKING: of a circle nobody can read one module without the others."""
    exported = exports()
    found = circles({name_of(path): modules_imported(tree(path), exported) - {name_of(path)} for path in MODULES})
    assert found == []


def test_a_circle_is_found_wherever_an_import_stands() -> None:
    source = """
        from typing import TYPE_CHECKING
        from recovery.records import Process, ids
        if TYPE_CHECKING:
            from recovery.retry.strategies import RetryStrategy
        def later():
            import recovery.limits
        """
    found = modules_imported(ast.parse(textwrap.dedent(source)), exports())
    assert found == {"recovery.records.process", "recovery.records.ids", "recovery.retry.strategies", "recovery.limits"}
    assert circles({"a": {"b"}, "b": {"c", "d"}, "c": {"a"}, "d": set()}) == [["a", "b", "c"]]


def test_only_the_command_line_prints() -> None:
    """Workers and libraries log. A worker that can't be configured says so before there is a log."""
    talkers = [
        name_of(path)
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    may = ("recovery.cli", "recovery.demo", "recovery.worker.app")
    assert [name for name in talkers if not any(within(name, talker) for talker in may)] == []


def test_a_driver_is_imported_by_the_modules_made_for_it() -> None:
    wrong = []
    for path in MODULES:
        for what in imported(path):
            allowed = DRIVERS.get(what.partition(".")[0])
            users = [user for part, users in (allowed or {}).items() if within(what, part) for user in users]
            if allowed is not None and not any(within(name_of(path), user) for user in users):
                wrong.append(f"{name_of(path)} imports {what}; that may: {', '.join(users) or 'nobody'}")
    assert wrong == []


def test_the_database_is_nobodys_but_the_stores() -> None:
    """Whoever wants to know something of it asks a named query."""
    wrong = []
    for path in MODULES:
        for node in ast.walk(tree(path)) if not within(name_of(path), "recovery.store") else ():
            if isinstance(node, ast.Attribute) and node.attr in ("database", "_database"):
                of = ast.unparse(node.value)
                if not of.endswith("settings"):
                    wrong.append(f"{name_of(path)}, line {node.lineno}: {of}.{node.attr}")
    assert wrong == []


_FILE = re.compile(r"`((?:recovery|workers|tests|deploy)/[\w/.-]+\.\w+)`")


def test_what_is_referred_to_is_in_the_repository() -> None:
    """The order of writes and the invariants stand in docs/records.md, the rules in docs/failure-map.md."""
    sources = [*MODULES, *TEXTS, *(ROOT / "tests").rglob("*.py")]
    found = [path.name for path in sources if re.search(r"(?i)design \xa7|\xa7 ?\d", path.read_text(encoding="utf-8"))]
    assert found == []
    pages = {page for path in MODULES for page in re.findall(r"docs/[\w-]+\.md", path.read_text(encoding="utf-8"))}
    assert [page for page in sorted(pages) if not (ROOT / page).is_file()] == []
    named = {path for page in TEXTS if page.name != "CHANGELOG.md" for path in _FILE.findall(page.read_text())}
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []


def test_a_section_that_is_named_is_one() -> None:
    wrong = []
    for path in MODULES:
        for page, section in re.findall(r"(docs/[\w-]+\.md), '([^']+)'", path.read_text(encoding="utf-8")):
            if not re.search(rf"^#+ {re.escape(section)}$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE):
                wrong.append(f"{name_of(path)}: {page} has no section {section!r}")
    assert wrong == []


def test_a_metric_that_is_named_is_one() -> None:
    """As docs/metrics.md has them, which another test compares with what is served."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    there = {re.sub("_total$", "", name) for name in re.findall(r"^\| `(recovery_\w+)` \|", page, re.MULTILINE)}
    wrong = []
    for path in MODULES:
        for told in re.findall(r"^ *Metrics?: (.*?)(?:\n\n|\n?\"\"\")", path.read_text(encoding="utf-8"), re.M | re.S):
            named = {re.sub("_total$", "", name) for name in re.findall(r"\brecovery_\w+", told)}
            wrong += [f"{name_of(path)}: {name}" for name in sorted(named - there)]
    assert there
    assert wrong == []


def test_the_tree_of_errors_is_whole() -> None:
    above, tree = ["RecoveryError"], {}
    for indent, name in re.findall(r"^([│ ]*)[├└]── (\w+)", errors.__doc__ or "", re.MULTILINE):
        depth = len(indent) // 4  # of a first level there is one
        tree[name] = above[depth - 1]
        above[depth:] = [name]
    ours = [cls for cls in vars(errors).values() if inspect.isclass(cls) and cls.__module__ == errors.__name__]
    assert tree == {cls.__name__: cls.__bases__[0].__name__ for cls in ours if cls is not errors.RecoveryError}


def test_contributing_names_every_package() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = "\n".join(re.findall(r"^\| `.*", page, re.MULTILINE))
    rooms = {path.parent for path in MODULES if path.name == "__init__.py" and path.parent.parent == ROOT / "recovery"}
    assert [room.name for room in sorted(rooms) if f"`recovery/{room.name}`" not in rows] == []


def named(dotted: str) -> bool:
    """Whether there is such a module, or something in one."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(["recovery", *parts[:end]]))
        except ImportError:
            continue
        except SystemExit:  # a worker's, without an application
            return True
        return all((found := getattr(found, name, None)) is not None for name in parts[end:])
    return False


def test_a_module_that_is_named_is_one() -> None:
    """In backticks, as `store.lifecycle.decisions`: texts outlive the modules that they name."""
    rooms = "|".join(sorted(path.parent.name for path in (ROOT / "recovery").glob("*/__init__.py")))
    wrong = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in [*MODULES, *TEXTS]
        for found in re.findall(rf"`(?:recovery\.)?((?:{rooms})(?:\.[A-Za-z_]+)+)`", path.read_text(encoding="utf-8"))
        if not named(found)
    ]
    assert wrong == []


def test_what_tests_import_of_ours_is_there() -> None:
    """Type checkers leave most tests out, and an import that fails is seen when the test runs: hours later, perhaps."""
    wrong = [
        f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "recovery"
        for alias in node.names
        if not (
            hasattr(recovery, alias.name) if node.module == "recovery" else named(f"{node.module[9:]}.{alias.name}")
        )
    ]
    assert wrong == []


def test_what_tests_take_of_our_modules_is_there() -> None:
    """The same of `module.name`, where the module is imported as a whole."""
    wrong = []
    for path in TESTS:
        modules = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree(path))
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "recovery"
            for alias in node.names
            if f"{node.module}.{alias.name}" in NAMES
        }
        taken = (
            one for one in ast.walk(tree(path)) if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
        )
        wrong += [
            f"{path.relative_to(ROOT)}: {modules[one.value.id]}.{one.attr}"
            for one in taken
            if isinstance(one.value, ast.Name) and one.value.id in modules
            if not hasattr(importlib.import_module(modules[one.value.id]), one.attr)
        ]
    assert wrong == []


def lazy_packages() -> list[Path]:
    """Packages that import what they export at its first use."""
    return [path for path in MODULES if path.name == "__init__.py" and "recovery.lazy_imports" in imported(path)]


def test_a_name_is_exported_from_where_type_checkers_read_it() -> None:
    assert len(lazy_packages()) > 3
    for path in lazy_packages():
        package, checked, homes = name_of(path), {}, {}
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module and within(node.module, package):
                checked |= {alias.name: node.module for alias in node.names}
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "exported":
                modules = ast.literal_eval(node.args[1])
                homes = {name: f"{package}.{module}" for module, names in modules.items() for name in names.split()}
        found = importlib.import_module(package)
        assert homes.items() <= checked.items(), package
        assert homes.keys() <= set(found.__all__), package
        assert all(hasattr(found, name) for name in found.__all__), package
        assert all(hasattr(found, name) for name in homes)
        # The import of a module would put it in the place of what is exported under its name.
        assert {
            name for name in homes if (path.parent / name).is_dir() or (path.parent / f"{name}.py").exists()
        } == set()
