"""One word for one thing: names and phrases that the code and its pages once had, and do not use any more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PARTS = ("*.*", "recovery/**/*.*", "workers/**/*.*", "docs/**/*.*", "examples/**/*.*", "deploy/**/*.*")
NAMES = {
    "far_off": "unreachable_deadlines",
    "FarOff": "UnreachableDeadlines",
    "in_hand": "claimed_task",
    "InHand": "ClaimedTask",
    "patiently": "through_outage",
    "when_served": "wait_for_servers",
    "impatient": "time_limit",
    "hurry": "advance_deadline",
    "put_off": "postpone",
    "look_later": "postpone",
    "wait_longer": "postpone",
    "unmessaged": "requeue_message_lost",
    "not_run": "requeue_unrun",
    "unlist_beaten": "remove_superseded",
    "comes_back": "in_outage_grace",
    "met_blocked": "on_blocked_message",
    "Errand": "Work",
    "Seen": "RangeCounts",
    "Ran": "RunRecord",
    r"MOST_\w+": "MAX_…",
    r"\w+_WITHIN": "…_TIMEOUT",
}
"""{a name, or what it looks like: what it is called}. In code only: some are words of plain English."""
PHRASES = [
    "bring on", "brought on", "brings it on", "pushed? again", "put off", "late results?", "gave up", "given up",
    "how much is where", "all of this at once", "text can't be had", "nor was it before", "served by nobody",
    "stand in what is broken", r"\b1 (timeouts|tasks|attempts|processes)\b", "which is its max_work_timeouts",
    "see the next but one", "queue that something eats", "he would start",
]  # fmt: skip
"""What readers stumbled over, in sources and pages."""


def files(*suffixes: str) -> list[Path]:
    """What is ours, whether the checkout has a history or not."""
    ours = [path for part in PARTS for path in sorted(ROOT.glob(part))]
    return [path for path in ours if path.suffix in suffixes and path != Path(__file__)]


def without_texts(source: str) -> str:
    """Code without comments, docstrings and texts."""
    source = re.sub(r'"""(.|\n)*?"""', '""', source)
    return re.sub(r"#.*|\"[^\"\n]*\"", "", source)


def found(pattern: str, text: str) -> list[str]:
    return [match[0] for match in re.finditer(pattern, text)]


def test_names() -> None:
    pattern = rf"\b(?:{'|'.join(NAMES)})\b"
    old = {
        path.relative_to(ROOT).as_posix(): names
        for path in files(".py")
        if (names := found(pattern, without_texts(path.read_text(encoding="utf-8"))))
    }
    assert old == {}, NAMES


@pytest.mark.parametrize("phrase", PHRASES)
def test_phrases(phrase: str) -> None:
    wrong = {
        path.relative_to(ROOT).as_posix(): phrases
        for path in files(".py", ".md", ".yml", ".toml")
        if (phrases := found(rf"(?i){phrase}", " ".join(path.read_text(encoding="utf-8").split())))
    }
    assert wrong == {}


def test_an_old_name_is_found() -> None:
    assert found(
        rf"\b(?:{'|'.join(NAMES)})\b", without_texts('x = put_off(MOST_LINES)  # hurry\n"""look_later"""')
    ) == [
        "put_off",
        "MOST_LINES",
    ]
