"""Workflow files, real ones with something changed: loaded, or refused in one message."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import Any

from recovery.errors import WorkflowError
from recovery.wfformat import Workflow, example_path, load
from recovery.wording import printable_lines
from tests.fuzz.conftest import rounds
from tests.fuzz.texts import acts, nasty

SHARED = Path(__file__).parents[3] / "shared" / "data" / "wfinstances"
ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 1e308, 10**400, "", [], {}, [[]], "x" * 10_000, ["a", "a"], [None], {"id": "a"},
    float("nan"), float("inf"), "1.5", "1.4", "\ud800", "\x1b[2J", -0.0, [1], {"": ""},
]  # fmt: skip


def places(value: Any) -> list[tuple[Any, Any]]:
    """(holder, key) of all that a document holds."""
    found, rest = [], [value]
    while rest:
        one = rest.pop()
        for key, item in one.items() if isinstance(one, dict) else enumerate(one):
            found.append((one, key))
            if isinstance(item, dict | list):
                rest.append(item)
    return found


def change(document: Any, draw: random.Random) -> None:
    where = places(document)
    if not where:
        return
    holder, key = draw.choice(where)
    what = draw.random()
    if what < 0.3:
        del holder[key]
    elif what < 0.6:
        holder[key] = copy.deepcopy(draw.choice(ODD))  # it may be changed next
    elif what < 0.7:
        holder[key] = nasty(draw)
    elif what < 0.85:
        other, place = draw.choice(where)
        if place in other if isinstance(other, dict) else place < len(other):
            holder[key] = json.loads(json.dumps(other[place]))
    elif isinstance(holder, list):
        holder.append(json.loads(json.dumps(holder[key])))


def spoilt(text: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(text))
    return draw.choice(
        [
            text[:place],
            text[:place] + bytes([draw.randrange(256)]) + text[place + 1 :],
            text[:place] + b"[" * 100_000,
            text[:place] + b"9" * 5000 + text[place:],
            text[::-1],
            text.decode().encode("utf-16"),
            b"\xef\xbb\xbf" + text,
            b"",
        ]
    )


@rounds(ci=300, soak=22_000)
def test_a_changed_file_is_loaded_or_refused(rounds: int, seed: int, tmp_path: Path) -> None:
    draw, path, refused = random.Random(seed), tmp_path / "workflow.json", 0
    # The smaller half: a change is looked for in all of a file.
    texts = [example_path().read_bytes(), *(one.read_bytes() for one in sorted(SHARED.glob("helloworld*.json")))]
    for _ in range(rounds):
        text = draw.choice(texts)
        if draw.random() < 0.7:
            document = json.loads(text)
            for _ in range(draw.choice([1, 1, 1, 2, 5])):
                change(document, draw)
            text = json.dumps(document).encode()
        else:
            text = spoilt(text, draw)
        path.write_bytes(text)
        try:
            assert isinstance(load(path), Workflow)
        except WorkflowError as error:
            refused += 1
            assert str(error).startswith(str(path))
            assert acts(printable_lines(error)) is None
            assert len(str(error)) < 20_000
    assert refused > rounds / 4
