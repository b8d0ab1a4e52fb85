"""Servers, workers and beats started for you: development, the demo and the tests run on the real thing.

MongoDB and Valkey come from PATH or from a wheel and run as plain child processes (`servers`, both of the
shape `server_process`) on free ports, each in a directory that is marked as its own and locked while it runs
(`datadir`). Several mongods are a `replica_set`. Whatever ends us, nothing is left behind: every child leads a process
group (`child`) that a guard process kills when we are gone (`guard`). `stack` puts them together and adds workers and
beats. A server can be killed and started again on its data, or be frozen, a primary step down, and a worker be killed
alone or with its pool: the tests of recovery are made of that.
"""

from recovery.stack.child import ChildProcess
from recovery.stack.replica_set import Member, ReplicaSet
from recovery.stack.server_process import ServerProcess
from recovery.stack.servers import Mongod, Valkey
from recovery.stack.stack import Stack

__all__ = ["ChildProcess", "Member", "Mongod", "ReplicaSet", "ServerProcess", "Stack", "Valkey"]
