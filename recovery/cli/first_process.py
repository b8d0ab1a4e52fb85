"""The first process of a container, as a small init: starts a program, hands signals on to it, and reaps its orphans.

A process whose parent has ended becomes a child of the first process, which has to wait for it once it ends. Otherwise
it stays as a zombie. A worker can't do that itself: it can't tell such a process from one whose exit code Celery, or an
actor's thread, waits for. So this is run as a program of its own, which only imports what it takes:

    python -I -S first_process.py PROGRAM [ARGUMENT]...
"""

import contextlib
import os
import signal
import sys

HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def run(command: list[str]) -> int:
    """Run a program in a session of its own, and return its exit code once it has ended: 128 and the signal that ended
    it, if one did."""
    # Blocked until they can be handed on; a program would inherit that, so it is undone there.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HANDED_ON)
    program = os.fork()
    if program == 0:
        # Its own session: Ctrl-C in a terminal reaches it once, by us.
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.execvp(command[0], command)

    def hand_on(number: int, _: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # it has ended just now, and so do we
            os.kill(program, number)

    for number in HANDED_ON:
        signal.signal(number, hand_on)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    while True:
        ended, status = os.wait()
        if ended == program:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
