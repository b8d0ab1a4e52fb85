"""The engine's own threads, held back where a test decides the order of steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from recovery.engine import Outbox, Registrar


@contextmanager
def threads_held() -> Iterator[None]:
    """Within, no outbox and no registrar starts a thread. What waits there is done by `flush`, in the thread that
    calls it: so a plan for that thread reaches these steps as well."""
    with ExitStack() as held:
        for owner in (Registrar, Outbox):
            held.enter_context(patch.object(owner, "_start_thread", lambda _: True))
        yield
