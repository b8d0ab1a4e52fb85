"""One task's way through the code is short, and the page that shows it tells the truth."""

from __future__ import annotations

import inspect
import re
import sys
import threading
from types import FrameType
from typing import Any

from recovery.engine import Slot
from recovery.engine.apply.outbox import Outbox
from recovery.records import Promise
from recovery.store.lifecycle.processes import Processes
from tests.docs.architecture import PAGE
from tests.faults import threads_held
from tests.world import World, arguments

MOST = 30
"""Modules of these rooms that one task passes: what somebody reads who wants to know how a task is run."""
ROOMS = ("engine", "store")


class Trace:
    """The modules that this thread enters, in order, from `begin` to the end of a process."""

    def __init__(self) -> None:
        self.modules: list[str] = []

    def begin(self) -> None:
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is inspect.unwrap(Processes.finish).__code__:
            self.end()
        room, _, module = str(frame.f_globals.get("__name__")).removeprefix("recovery.").partition(".")
        name = f"{room}.{module}".rstrip(".")
        if event == "call" and room in ROOMS and name not in self.modules:
            self.modules.append(name)

    def end(self) -> None:
        sys.setprofile(None)


def test_one_task_passes_few_modules_and_the_page_names_them(world: World) -> None:
    trace, threads = Trace(), set[int]()

    @world.app.actor()
    def pack(item: str) -> str:
        threads.add(threading.get_ident())
        return item

    @world.app.process()
    def order(item: str, traced: bool) -> Promise:
        if traced:
            trace.begin()
        return pack.schedule(item)

    world.run(order, "ring", False)  # what is read once is known then
    process_id = world.start(order, "ring", True)
    # Of its own: the application's has a thread by now, which would apply what waits for longer than a moment.
    message, outbox = world.pop(["order"]), Outbox(world.app.resources)
    outbox._clearing._patience = 600.0  # deadlines are taken off when all is done
    assert message is not None
    slot = Slot(world.app.resources, outbox, world.app.actors, "w#1")
    try:
        # In this thread, where it is traced; otherwise the outbox's own thread does the same.
        with threads_held():
            slot.run(order, *arguments(message))
            outbox.flush()
    finally:
        trace.end()
    assert world.app.result(process_id, timeout=0) == "ring"
    assert threads == {threading.get_ident()}, "else it went where nobody traced it"
    assert len(trace.modules) <= MOST, " ".join(trace.modules)
    told = PAGE.read_text().partition("## One task's way")[2]
    assert re.findall(r"^\| `([a-z_.]+)` \|", told, re.MULTILINE) == trace.modules
