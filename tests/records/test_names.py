"""Which names an actor can have: none with which a message would go into a list that is somebody else's."""

from __future__ import annotations

import re

import pytest

from recovery.records.ids import ACTOR_NAME_PATTERN, is_actor_name, is_reserved

NAMES = ["pack", "shop.pack-it_2", "9", "a" * 200, "recovery.canary", "sparks", "celeryx", "x.pidbox.y", "-", "_kombux"]
RESERVED = [
    *("recovery", "recovery.nudge", "recovery.kept", "recovery.apply.0", "recovery.canaryx", "spark", "unacked"),
    *("unacked_index", "unacked_mutex", "_kombu.binding.reply.celery.pidbox", "celery", "celery.x", "celeryev.1"),
    *("0.celery.pidbox", "a.reply.celery.pidbox", "pack.not-a-queue.0a"),
]
NONE = [
    "",
    "a" * 201,
    "a b",
    "a/b",
    "a:b",
    "pack\n",
    "\npack",
    "caf\u00e9",
    "$x",
    "a\0",
    "pack\x06\x163",
    "{a}",
    "a" * 10**6,
]


@pytest.mark.parametrize("name", NAMES)
def test_an_actor_can_be_called(name: str) -> None:
    assert is_actor_name(name) and _in_mongodb(name) and (name == "recovery.canary") is is_reserved(name)


@pytest.mark.parametrize("name", [*RESERVED, *NONE], ids=lambda name: repr(name[:20]))
def test_no_actor_can_be_called(name: str) -> None:
    assert not is_actor_name(name) and not _in_mongodb(name)
    assert is_reserved(name) is (name in RESERVED)


def _in_mongodb(name: str) -> bool:
    """What the expression for MongoDB says, by Python, which has another name for the end."""
    return re.search(ACTOR_NAME_PATTERN.replace(r"\z", r"\Z"), name) is not None
