"""A connection that was given up, and a message of it that is given back after that."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from recovery.settings import Settings

# In a process of its own: what is installed stays.
LATE = """
import json, sys
from kombu import Connection, Consumer, Queue
from recovery.worker.messages import transport
if sys.argv[2] == "mended":
    transport.install()
connection = Connection(sys.argv[1])
connection.SimpleQueue("late").put("a message")
got = []
with Consumer(connection.default_channel, [Queue("late")], callbacks=[lambda _, message: got.append(message)]):
    connection.drain_events(timeout=5)
connection.release()
got[0].channel._disconnect_pools()  # as a channel does that loses its connection
try:
    got[0].reject(requeue=True)
except Exception as error:
    print(json.dumps([type(error).__name__, isinstance(error, connection.connection_errors)]))
"""


@pytest.mark.parametrize(("which", "told"), [("mended", ["ConnectionError", True]), ("own", ["AttributeError", False])])
def test_a_late_word_of_a_connection_that_was_given_up(settings: Settings, which: str, told: list[object]) -> None:
    """The day kombu's own says it too, ours can go."""
    command = [sys.executable, "-c", LATE, settings.broker_url, which]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == told
