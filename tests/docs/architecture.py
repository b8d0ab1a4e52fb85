"""The pictures and the table of docs/architecture.md: the rooms of the code, and who imports whom.

    python -m tests.docs.architecture      # writes them into the page

A room is a package of `recovery`, or one of its modules; those that import nothing of ours but each other are shown as
one. The engine's packages have a picture of their own, without its single modules but for `app` and `steps`. An arrow
that follows from others is left out. `test_docs` fails while the page is not what this would write.
"""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "architecture.md"
ENGINE = ROOT / "recovery" / "engine"
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


def arrows(imports: Mapping[str, set[str]], names: Sequence[str]) -> list[tuple[str, str]]:
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
        for here in names
        for there in sorted(imports.get(here, ()), key=[*names, *DRIVERS].index)
        if there in DRIVERS or not any(there in reached(other) for other in imports[here] - {there})
    ]


def order() -> list[str]:
    """The rooms from the top down, as import-linter holds them to it."""
    modules = [f"recovery.{name}" for name in layers("recovery") if name != "__main__"]
    return list(dict.fromkeys(map(room, ["workers", *modules])))


def layers(package: str) -> list[str]:
    """What a package consists of, from the top down, by its contract."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = (one["layers"] for one in contracts if one.get("containers") == [package])
    return [name.strip() for layer in found for name in layer.split("|")]


def picture() -> str:
    """All of it as Mermaid draws it."""
    lines = ["flowchart TD"]
    lines += [f'    {_key(name)}["{name}"]' for name in order()]
    lines += [f'    {driver}(["{server}"])' for driver, server in DRIVERS.items()]
    for here, there in arrows(rooms(), order()):
        lines.append(f"    {_key(here)} {'-.->' if there in DRIVERS else '-->'} {_key(there)}")
    return "\n".join(lines)


def inside_engine() -> str:
    """The engine's packages, `app` above them and `steps` among them, as Mermaid draws it."""
    graph = grimp.build_graph("recovery")
    names = [name for name in layers("recovery.engine") if (ENGINE / name).is_dir() or name in ("app", "steps")]
    imports: dict[str, set[str]] = defaultdict(set)
    for module in graph.find_descendants("recovery.engine"):
        for imported in graph.find_modules_directly_imported_by(module):
            here, there = (one.removeprefix("recovery.engine.").partition(".")[0] for one in (module, imported))
            if here != there and {here, there} <= {*names}:
                imports[here].add(there)
    # A node that is called `end` would end a part of the picture.
    lines = ["flowchart TD", *(f'    engine_{name}["{name}"]' for name in names)]
    lines += [f"    engine_{here} --> engine_{there}" for here, there in arrows(imports, names)]
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
    parts = {"rooms": _mermaid(picture()), "table of rooms": table(), "inside the engine": _mermaid(inside_engine())}
    for part, made in parts.items():
        begin, end = f"<!-- generated: {part} -->\n", f"<!-- end of {part} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{made}\n\n{end}{rest.split(end)[1]}"
    return text


def _mermaid(drawn: str) -> str:
    return f"```mermaid\n{drawn}\n```"


def _key(name: str) -> str:
    return "floor" if name == FLOOR else name


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
