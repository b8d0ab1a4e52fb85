"""The process that a slot is in, as far as an attempt has to do with it.

Whatever an actor raises is its task's error, `sys.exit()` and the like included: a thread that they ended would be lost
to its pool without a word, and a process that they ended would tell nobody why. What is not the actor's is the end of
the process itself, which a signal raises in the middle of whatever runs; only the process knows.
"""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager, nullcontext

from recovery.records import Decision


class Host:
    """Any process. Those of a worker's pool know more of themselves."""

    def ends(self, error: BaseException) -> bool:
        """Whether an error says that this process is to end, and is none of the actor's.

        Here that is a Ctrl-C. Where it can't be one, a KeyboardInterrupt was raised by the actor: Python raises it in
        the main thread alone, and the processes of a pool have no handler for it.
        """
        return (
            isinstance(error, KeyboardInterrupt)
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )

    def running(self, decision: Decision, timeout: float) -> AbstractContextManager[object]:
        """Around the call of an actor's function: what runs here, and for how many seconds it may. What this raises
        cuts the attempt off: nothing that came of the call is written."""
        del decision, timeout
        return nullcontext()
