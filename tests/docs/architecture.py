"""The picture and the table of docs/architecture.md: the rooms of the code, and who imports whom.

    python -m tests.docs.architecture      # writes them into the page

A room is a package of `recovery`, or one of its modules; those that import nothing of ours but each other are shown as
one. An arrow that follows from others is left out. `test_docs` fails while the page is not what this would write.
"""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
FLOOR = "errors, settings and other single modules"
DRIVERS = {"pymongo": "MongoDB", "redis": "Redis", "celery": "Celery", "pyspark": "Spark"}
"""{what a driver is imported as: what it speaks to}."""

NO_ROOM = ("recovery", "recovery.__main__")
"""They hand on to what users hold, and to the command line."""


def rooms() -> dict[str, set[str]]:
    """{room: rooms and drivers that it imports}."""
    graph = grimp.build_graph("recovery", "workers", include_external_packages=True)
    found: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules - DRIVERS.keys():
        if module.partition(".")[0] not in ("recovery", "workers") or module in NO_ROOM:
            continue
        for imported in graph.find_modules_directly_imported_by(module):
            here, there = room(module), room(imported)
            if there and there != here:
                found[here].add(there)
    return dict(found)


def room(module: str) -> str:
    """Where a module is; empty for what is no part of the picture."""
    top, _, rest = module.partition(".")
    if top in DRIVERS or top == "workers":
        return top
    if top != "recovery" or not rest:
        return ""
    name = rest.partition(".")[0]
    return name if (ROOT / "recovery" / name).is_dir() else FLOOR


def arrows(imports: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Those that follow from no others: between them all that may be reached is reached."""

    def reached(start: str) -> set[str]:
        seen, left = set[str](), [start]
        while left:
            for there in imports.get(left.pop(), ()):
                if there not in seen:
                    seen.add(there)
                    left.append(there)
        return seen

    return [
        (here, there)
        for here in order()
        for there in sorted(imports.get(here, ()), key=[*order(), *DRIVERS].index)
        if there in DRIVERS or not any(there in reached(other) for other in imports[here] - {there})
    ]


def order() -> list[str]:
    """The rooms from the top down, as import-linter holds them to it."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (one["layers"] for one in contracts if one.get("containers") == ["recovery"])
    modules = [f"recovery.{name.strip()}" for layer in layers for name in layer.split("|") if name != "__main__"]
    return list(dict.fromkeys(map(room, ["workers", *modules])))


def picture() -> str:
    """All of it as Mermaid draws it."""
    lines = ["flowchart TD"]
    lines += [f'    {_key(name)}["{name}"]' for name in order()]
    lines += [f'    {driver}(["{server}"])' for driver, server in DRIVERS.items()]
    for here, there in arrows(rooms()):
        lines.append(f"    {_key(here)} {'-.->' if there in DRIVERS else '-->'} {_key(there)}")
    return "\n".join(lines)


def table() -> str:
    """What each room says of itself first."""
    lines = ["| Room | What it is for |", "| --- | --- |"]
    for name in order():
        if name == FLOOR:
            continue
        folder = ROOT / name if name == "workers" else ROOT / "recovery" / name
        told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
        first = " ".join(told.partition("\n\n")[0].split())
        lines.append(f"| `{folder.relative_to(ROOT)}` | {first.replace('|', chr(92) + '|')} |")
    return "\n".join(lines)


def page(text: str) -> str:
    """The page with its generated parts made anew."""
    for part, made in (("rooms", f"```mermaid\n{picture()}\n```"), ("table of rooms", table())):
        begin, end = f"<!-- generated: {part} -->\n", f"<!-- end of {part} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{made}\n\n{end}{rest.split(end)[1]}"
    return text


def _key(name: str) -> str:
    return "floor" if name == FLOOR else name


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
