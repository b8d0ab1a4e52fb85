"""Servers, workers and beats as child processes of this one, so that development, the demo and tests use a real
cluster.

MongoDB and Valkey come from PATH or from a wheel. They run on free ports (`servers`, on the base `server_process`),
each in a directory that is marked as its own and locked while the server runs (`datadir`). Several mongods form a
`replica_set`. `stack` combines servers, workers and beats.

No process outlives this one, however it ends: every child leads a process group (`child`), and a guard process kills
the groups when this process is gone (`guard`).

For tests of recovery, a server can be killed and restarted on its data, or be frozen; a primary can step down; and a
worker can be killed alone or with its pool.
"""

from recovery.stack.child import ChildProcess
from recovery.stack.replica_set import Member, ReplicaSet
from recovery.stack.server_process import ServerProcess
from recovery.stack.servers import Mongod, Valkey
from recovery.stack.stack import Stack

__all__ = ["ChildProcess", "Member", "Mongod", "ReplicaSet", "ServerProcess", "Stack", "Valkey"]
