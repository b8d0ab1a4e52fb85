"""Hosts that are network namespaces at one switch, and cuts between them.

A host drops what comes from another one by a rule of nftables at its input, so each direction is cut by itself and no
connection is closed: that is what a broken network does. Of each run the namespaces have their own names. They end with
it, and those of a run that was killed are removed by the next one.

Whoever asks from the switch (`Hosts.ask`) reaches every host at all times, as no rule names its address.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from recovery.stack.child import ChildProcess

T = TypeVar("T")

PREFIX = "recovery-test"
SUBNET = "10.77.0"
SWITCH, BRIDGE, PORT = "switch", "br0", "eth0"
PROGRAMS = {"ip": "iproute2", "nft": "nftables", "ethtool": "ethtool", "unshare": "util-linux"}
"""{program: Debian's package that has it}."""
FILTER = "add table inet cut; add chain inet cut in { type filter hook input priority 0; policy accept; }"
_NEW_NETWORK = 0x40000000  # CLONE_NEWNET


class Hosts:
    """Hosts by name, each with an address in one subnet. `up` makes them, `down` removes them."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        """`numbers` are the last parts of the addresses."""
        self.addresses = {name: f"{SUBNET}.{number}" for name, number in numbers.items()}
        self._asking: ThreadPoolExecutor | None = None

    def up(self) -> None:
        """Make the hosts and connect them. Raises CalledProcessError with what is left to `down`."""
        _remove_of_dead_runs()
        switch = namespace(SWITCH)
        _run("ip", "netns", "add", switch)
        _run("ip", "-n", switch, "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "-n", switch, "address", "add", f"{SUBNET}.254/24", "dev", BRIDGE)
        for link in (BRIDGE, "lo"):
            _run("ip", "-n", switch, "link", "set", link, "up")
        for name, address in self.addresses.items():
            self._add(name, address)
        self._asking = ThreadPoolExecutor(4, initializer=_enter, initargs=(switch,))

    def _add(self, name: str, address: str) -> None:
        own, switch, cable = namespace(name), namespace(SWITCH), cable_of(name)
        _run("ip", "netns", "add", own)
        _run("ip", "link", "add", PORT, "netns", own, "type", "veth", "peer", "name", cable, "netns", switch)
        _run("ip", "-n", own, "address", "add", f"{address}/24", "dev", PORT)
        _run("ip", "-n", switch, "link", "set", cable, "master", BRIDGE, "up")
        for link in ("lo", PORT):
            _run("ip", "-n", own, "link", "set", link, "up")
        # A switch in user space forwards packets as they are: with checksums, and not longer than the wire takes.
        for place, link in ((own, PORT), (switch, cable)):
            _inside(place, "ethtool", "-K", link, "tx", "off", "tso", "off", "gso", "off", "gro", "off")
        _inside(own, "nft", FILTER)

    def down(self) -> None:
        """Remove all of it. What runs in them is ended before."""
        if self._asking is not None:
            self._asking.shutdown()
        for name in (*self.addresses, SWITCH):
            subprocess.run(["ip", "netns", "delete", namespace(name)], capture_output=True, check=False)

    def ask(self, question: Callable[[], T]) -> T:
        """What a function gives that is called in the switch, from where all hosts are reached at all times."""
        assert self._asking is not None, "the hosts are not up"
        return self._asking.submit(question).result()

    def on(self, host: str, *command: str | Path) -> list[str | Path]:
        """A command that runs on a host, with this machine's processes and files."""
        return ["ip", "netns", "exec", namespace(host), *command]

    def alone_on(self, host: str, *command: str | Path) -> list[str | Path]:
        """The same with a host name and processes of its own, as on a machine of its own."""
        named: Sequence[str | Path] = ["sh", "-c", f'hostname {host} && exec "$@"', "sh", *command]
        return self.on(host, "unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", *named)

    def drop(self, source: str, target: str) -> None:
        """Lose what `source` sends to `target`, and not what comes back."""
        self._rule(target, "ip", "saddr", self.addresses[source], "drop")

    def cut(self, host: str, others: Iterable[str]) -> None:
        """Cut a host from others, both ways."""
        for other in others:
            self.drop(host, other)
            self.drop(other, host)

    def isolate(self, host: str) -> None:
        """Cut a host from all others."""
        self.cut(host, self.others(host))

    def others(self, host: str) -> list[str]:
        """All hosts but this one."""
        return [other for other in self.addresses if other != host]

    def cut_connections(self, host: str, port: int, servers: Iterable[str]) -> int:
        """Have all connections that a host has to a port of these servers now die without a word, as behind a firewall
        that was restarted. New ones are served. Returns how many there were."""
        listed = _inside(
            namespace(host), "ss", "-Htn", "state", "established", "dport", "=", f":{port}", "src", self.addresses[host]
        )
        ports = sorted({line.split()[2].rpartition(":")[2] for line in listed.splitlines()})
        if ports:
            dead = f"{{ {', '.join(ports)} }}"
            self._rule(host, "tcp", "sport", str(port), "tcp", "dport", dead, "drop")
            for server in servers:
                self._rule(server, "ip", "saddr", self.addresses[host], "tcp", "sport", dead, "drop")
        return len(ports)

    def change_address(self, host: str, number: int) -> None:
        """Give a host another address in place of the one it has."""
        address = f"{SUBNET}.{number}"
        _run("ip", "-n", namespace(host), "address", "flush", "dev", PORT, "scope", "global")
        _run("ip", "-n", namespace(host), "address", "add", f"{address}/24", "dev", PORT)
        self.addresses[host] = address

    @contextmanager
    def switched_by(self, program: Callable[[list[str]], ChildProcess]) -> Iterator[None]:
        """Have a program forward packets between the ports in place of the bridge, as long as this lasts. Meanwhile
        nobody reaches the hosts from the switch."""
        cables = [cable_of(name) for name in self.addresses]
        for cable in cables:
            _run("ip", "-n", namespace(SWITCH), "link", "set", cable, "nomaster")
        running = program(cables)
        try:
            yield
        finally:
            running.kill_group()
            for cable in cables:
                _run("ip", "-n", namespace(SWITCH), "link", "set", cable, "master", BRIDGE)

    def heal(self) -> None:
        """Cut nothing any more."""
        for host in self.addresses:
            _inside(namespace(host), "nft", "flush", "chain", "inet", "cut", "in")

    def _rule(self, host: str, *rule: str) -> None:
        _inside(namespace(host), "nft", "add", "rule", "inet", "cut", "in", *rule)


def why_not() -> str | None:
    """Why no hosts can be made on this machine; None if they can."""
    if os.geteuid() != 0:
        return "needs root: hosts are network namespaces"
    missing = sorted(program for program in PROGRAMS if shutil.which(program) is None)
    if missing:
        return f"needs {', '.join(missing)}: apt install {' '.join(PROGRAMS[one] for one in missing)}"
    try:
        _run("unshare", "--net", "--uts", "--pid", "--fork", "--mount-proc", "nft", FILTER)
    except subprocess.CalledProcessError as error:
        return f"network namespaces are not allowed here: {error.stderr.strip()}"
    return None


def namespace(host: str) -> str:
    """The name of a host's namespace in this run."""
    return f"{PREFIX}-{os.getpid()}-{host}"


def cable_of(host: str) -> str:
    """The name of a host's port at the switch."""
    return f"p-{host}"


def _remove_of_dead_runs() -> None:
    for line in _run("ip", "netns", "list").splitlines():
        name = line.split()[0]
        if name.startswith(f"{PREFIX}-") and not Path("/proc", name.split("-")[2]).exists():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _inside(place: str, *command: str) -> str:
    return _run("ip", "netns", "exec", place, *command)


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _enter(place: str) -> None:
    """Have the calling thread, and threads that it starts, use the network of a namespace."""
    with Path("/run/netns", place).open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"namespace {place} not entered")
