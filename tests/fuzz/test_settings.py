"""Values that nobody would give, by the environment and by TOML: taken, or refused with the setting's name."""

from __future__ import annotations

import math
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recovery.errors import SettingsError
from recovery.settings import OFTEN, Settings, load
from recovery.wording import printable_lines
from tests.fuzz.conftest import rounds
from tests.fuzz.texts import acts, nasty

VALUES = [
    "", " ", "0", "1", "-1", "1e-300", "1e300", "1e400", "nan", "inf", "-inf", "true", "false", "yes", "null", "[]",
    "{}", "0x10", "1_000", "9" * 400, "9" * 5000, "٣", "1.5", "0.01", "60", "a:b", "..:x", "a.b:c", ".", "/", "~",
    "/dev/null", "local[*]", "local[0]", "spark://h:1", "127.0.0.1", "::1", "0.0.0.0", "h", "h:1", "-h", "redis://h",
    "mongodb://h", "admin", "x" * 38, "x" * 39, "1g", "1t", "[" * 3000, "{" * 3000,
]  # fmt: skip
PLAIN = ["true", "false", "0", "1", "-1", "1.5", "1e-300", "nan", "inf", "[1]", "{a = 1}", "1979-05-27", '""', "'x'"]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.upper().startswith("RECOVERY_")]:
        monkeypatch.delenv(name)
    yield


def name(draw: random.Random) -> str:
    known = draw.choice(list(Settings.model_fields))
    return known if draw.random() < 0.95 else known[:-1]


def value(draw: random.Random) -> str:
    return draw.choice(VALUES) if draw.random() < 0.8 else nasty(draw).replace("\0", "")


def toml(draw: random.Random) -> str:
    """A file of some settings; every tenth is no TOML."""
    lines = [f"{name(draw)} = {draw.choice(PLAIN) if draw.random() < 0.5 else quoted(value(draw))}" for _ in range(3)]
    text = "\n".join(dict.fromkeys(lines))
    return text if draw.random() < 0.9 else text + draw.choice(["[", "=", "\x00", "x = " + "[" * 2000, nasty(draw)])


def quoted(text: str) -> str:
    return "'" + "".join(one for one in text if one.isprintable() and one != "'") + "'"


def check(settings: Settings) -> None:
    """What is taken can be."""
    for field, taken in settings.model_dump().items():
        if type(taken) in (int, float):
            assert math.isfinite(taken) and 0 <= taken <= 316_224_000, (field, taken)
    assert settings.heartbeat_interval >= OFTEN and settings.scan_interval >= OFTEN
    assert str(settings.data_dir)


@rounds(ci=400, soak=25_000)
def test_every_value_is_taken_or_refused(
    rounds: int, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, path, refused = random.Random(seed), tmp_path / "recovery.toml", 0
    for _ in range(rounds):
        with monkeypatch.context() as variables:
            given: dict[str, Any] = {}
            if draw.random() < 0.5:
                given = {f"RECOVERY_{name(draw).upper()}": value(draw) for _ in range(draw.choice([1, 1, 3]))}
                for variable, text in given.items():
                    variables.setenv(variable, text)
            else:
                path.write_text(toml(draw), encoding="utf-8", errors="replace")
                variables.setenv("RECOVERY_CONFIG", str(path))
            try:
                check(load())
            except SettingsError as error:
                refused += 1
                said = str(error)
                assert "setting" in said or said.startswith("RECOVERY_CONFIG="), (given, said)
                assert len(said) < 5000, (given, said)
                assert acts(printable_lines(said)) is None
    assert rounds / 20 < refused < rounds
