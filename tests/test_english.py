"""The English of the sources, as far as a program can judge it: names of variables, first words of docstrings.

`REWRITTEN` are the packages that follow the rules so far; whatever is added to them is checked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "recovery"
REWRITTEN = (
    "demo", "drill", "engine", "metrics", "operations", "queue", "records", "repair", "retry", "rules", "scan",
    "schedule", "search", "stack", "store", "survey", "sweep", "tracing", "wfformat", "worker",
)  # fmt: skip
PRONOUNS = {"one", "some", "odd", "its", "here", "heres", "told", "said", "came_of", "beside", "those"}
"""Names of loop variables that say nothing of what they hold."""
VERBS = frozenset(
    re.findall(
        r"\w+",
        """
    Abort Acquire Act Add Advance Answer Append Apply Ask Audit Beat Begin Block Break Bring Call Cancel Carry
    Cause Change Check Choose Claim Classify Clean Clear Close Combine Compare Complete Consume Continue Copy
    Correct Count Create Decide Declare Decode Delay Delete Describe Destroy Diagnose Disable Discard Do Drop
    Enable End Enqueue Exclude Explain Export Extend Fail Filter Find Finish Forget Free Freeze Give Group Hand
    Handle Have Hold Initiate Insert Judge Keep Kill Lease Leave Let Limit List Lock Log Look Make Map Mark
    Measure Mend Move Note Notify Observe Open Order Parse Pass Pause Perform Postpone Print Process Push Put
    Raise Read Rebuild Record Redo Register Release Relieve Remember Remove Rename Renew Reopen Repair Replace
    Report Request Requeue Rescue Reserve Restart Restore Resume Return Rewrite Run Save Scan Schedule Select
    Send Serve Set Show Shut Skip Sleep Split Start Stop Subtract Sync Take Treat Unblock Unregister Unset Update
    Wait Watch Withdraw Work Write Yield
    """,
    )
)
"""Words with which a docstring of a function begins."""


def loop_variables(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each loop variable, of statements and comprehensions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            for name in ast.walk(node.target):
                if isinstance(name, ast.Name):
                    yield name.lineno, name.id


def first_words(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the first word of each function's docstring. Those of properties and `__init__` are nouns."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            is_property = any("property" in ast.unparse(decorator) for decorator in node.decorator_list)
            if not is_property and not node.name.startswith("__"):
                yield node.lineno, re.split(r"\W", text, maxsplit=1)[0]


def begins_well(word: str) -> bool:
    """Return whether a word is a verb, or the name of a rule, as of the functions that find it."""
    return word in VERBS or (word.isupper() and len(word) > 1)


@pytest.mark.parametrize("package", REWRITTEN)
def test_loop_variables_are_nouns(package: str) -> None:
    wrong = {
        f"{path.relative_to(ROOT)}:{line}": name
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, name in loop_variables(ast.parse(path.read_text(encoding="utf-8")))
        if name in PRONOUNS
    }
    assert wrong == {}


@pytest.mark.parametrize("package", REWRITTEN)
def test_docstrings_of_functions_begin_with_a_verb(package: str) -> None:
    wrong = {
        f"{path.relative_to(ROOT)}:{line}": word
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, word in first_words(ast.parse(path.read_text(encoding="utf-8")))
        if not begins_well(word)
    }
    assert wrong == {}, "if it is a verb, add it to VERBS"


def test_what_is_wrong_is_found() -> None:
    tree = ast.parse('def f(xs):\n    """What came of it."""\n    return [one for one in xs]')
    assert [name for _, name in loop_variables(tree) if name in PRONOUNS] == ["one"]
    assert [word for _, word in first_words(tree) if not begins_well(word)] == ["What"]
