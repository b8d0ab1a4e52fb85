"""Print the score of each package after a run of mutmut, and its survivors. Exits with 1 below the bar.

Arguments are names of packages or modules, such as `rules` or `rules.times`: only these are reported.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent.toml")
BAR = 0.92
"""Share of a package's mutants that its tests kill."""


class Fate(Enum):
    """The result for one mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    STILLBORN = "stillborn"
    EQUIVALENT = "equivalent"


# mutmut's exit codes: a test failed or pytest did, the tests took too long (36 and SIGXCPU), mypy refused it. With any
# other one no test is known to have noticed: none failed, none runs the function, or they could not be run.
_FATES = {37: Fate.STILLBORN, **dict.fromkeys((1, 3, 24, -24, 36, 152, 255), Fate.KILLED)}


@dataclass(frozen=True)
class Mutant:
    """A change of one function."""

    name: str
    """As mutmut names it, such as `recovery.rules.times.x_is_late__mutmut_3`."""
    exit_code: int

    @property
    def package(self) -> str:
        """One of the pure packages."""
        return self.name.split(".")[1]

    @property
    def function(self) -> str:
        """The function that is changed, without the number of the change."""
        return self.name.rpartition("__mutmut_")[0]

    def change(self) -> str:
        """The changed lines as a diff has them, each with its sign."""
        shown = subprocess.run(
            [sys.executable, "-m", "mutmut", "show", self.name], cwd=ROOT, capture_output=True, text=True, check=True
        )
        lines = [line for line in shown.stdout.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        return "\n".join(line[0] + line[1:].strip() for line in lines)


def mutants(selected: Sequence[str]) -> list[Mutant]:
    """All mutants of these packages or modules, or of all. Raises SystemExit where one was not tried."""
    found: list[Mutant] = []
    for path in sorted((ROOT / "mutants" / "recovery").rglob("*.meta")):
        for name, code in json.loads(path.read_text())["exit_code_by_key"].items():
            if selected and not any(name.startswith(f"recovery.{part}.") for part in selected):
                continue
            if code is None:
                sys.exit(f"{name} was not tried: run `make mutants`")
            found.append(Mutant(name, code))
    return found or sys.exit("there are no mutants: run `make mutants`")


def equivalents() -> dict[tuple[str, str], str]:
    """{(function, change): why it changes nothing}."""
    listed = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return {(entry["function"], entry["change"].strip()): entry["reason"] for entry in listed}


def main(selected: Sequence[str]) -> int:
    """Print what became of the mutants; 1 if a package is below the bar."""
    known, fates, survivors = equivalents(), defaultdict[str, Counter[Fate]](Counter), list[str]()
    for mutant in mutants(selected):
        fate = _FATES.get(mutant.exit_code, Fate.SURVIVED)
        if fate is Fate.SURVIVED:
            change = mutant.change()
            if (mutant.function, change) in known:
                fate = Fate.EQUIVALENT
            else:
                survivors.append(f"{mutant.name}\n{change}\n")
        fates[mutant.package][fate] += 1
    print("\n".join(survivors))
    below = False
    for package, counts in fates.items():
        score = counts[Fate.KILLED] / max(1, counts[Fate.KILLED] + counts[Fate.SURVIVED])
        below |= score < BAR
        summary = ", ".join(f"{counts[fate]:,} {fate.value}" for fate in Fate)
        print(f"{package:9} {score:6.1%}  ({summary})")
    return int(below)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
