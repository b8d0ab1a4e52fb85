"""WfFormat documents for tests: built from edges, then spoilt by the test, then written."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Document = dict[str, Any]


def document(
    ids: Iterable[str] = "abcd",
    edges: Iterable[tuple[str, str]] = (("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")),
    version: str = "1.5",
) -> Document:
    """A correct document; by default a diamond."""
    ids, edges = list(ids), list(edges)
    return {
        "name": "a workflow",
        "schemaVersion": version,
        "workflow": {
            "specification": {
                "tasks": [
                    {
                        "name": id,
                        "id": id,
                        "parents": [parent for parent, child in edges if child == id],
                        "children": [child for parent, child in edges if parent == id],
                    }
                    for id in ids
                ]
            },
            "execution": {
                "makespanInSeconds": 1,
                "executedAt": "2025-01-15T09:00:00Z",
                "tasks": [{"id": id, "runtimeInSeconds": 0.5} for id in ids],
            },
        },
    }


def specification(of: Document) -> list[Document]:
    tasks: list[Document] = of["workflow"]["specification"]["tasks"]
    return tasks


def execution(of: Document) -> list[Document]:
    tasks: list[Document] = of["workflow"]["execution"]["tasks"]
    return tasks


def write(folder: Path, content: object) -> Path:
    path = folder / "workflow.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path
