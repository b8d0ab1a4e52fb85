"""Shells in which a test types `recovery` commands: completed, and run by a program that notes its arguments."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.cli.command import environment, recovery, template
from tests.cli.template import PATIENCE
from tests.cli.terminal import Typing
from tests.waiting import wait_until

COMMANDS = {
    "bash": ["bash", "--noprofile", "--rcfile", "{folder}/.rc", "-i"],
    "zsh": ["zsh", "-i"],
    "fish": ["fish", "-i"],
}
"""{shell: how it is started with the settings in a folder}."""
SETTINGS = {
    "bash": "bind 'set enable-bracketed-paste off'\n",
    "zsh": "unsetopt PROMPT_SP PROMPT_CR\nautoload -Uz compinit\ncompinit -u\n",
    "fish": "function fish_greeting; end\n",
}
PROGRAM = """#!{python} -IS
import json, os, socket, sys, tempfile
if "_RECOVERY_COMPLETE" not in os.environ:
    with open(os.environ["NOTED"], "a") as noted:
        noted.write(json.dumps(sys.argv[1:]) + "\\n")
    sys.exit()
with tempfile.NamedTemporaryFile() as said, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as template:
    template.connect({template!r})
    order = dict(arguments=[], env=dict(os.environ), cwd={cwd!r}, stdout=said.name, stderr=os.devnull)
    template.send(json.dumps(order).encode())
    code = json.loads(template.recv(100))
    sys.stdout.write(said.read().decode())
sys.exit(code)
"""
"""`recovery`: asked for completions it has them made by the real one, which needs no second to be imported."""
END = "end"


class Shell:
    """A shell with completion of `recovery`, in a folder of its own."""

    def __init__(self, name: str, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder, self._noted = folder, folder.parent / f"noted-by-{name}"
        programs = folder.parent / f"programs-of-{name}"
        folder.mkdir()
        programs.mkdir()
        program = programs / "recovery"
        program.write_text(PROGRAM.format(python=sys.executable, template=template(), cwd=str(Path.cwd())))
        program.chmod(0o755)
        script = recovery(env={"_RECOVERY_COMPLETE": f"source_{name}"}).stdout
        for file in (".rc", ".zshrc", ".config/fish/config.fish"):
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(SETTINGS[name] + script)
        env = environment(
            {
                **settings,
                PATIENCE: "30",
                "NOTED": str(self._noted),
                "PATH": f"{programs}:{os.environ['PATH']}",
                "PWD": str(folder),
                "HOME": str(folder),
                "XDG_CONFIG_HOME": str(folder / ".config"),
                "ZDOTDIR": str(folder),
                "TERM": "xterm",
            }
        )
        self._typing = Typing([part.format(folder=folder) for part in COMMANDS[name]], env, cwd=folder)

    def __enter__(self) -> Shell:
        self._typing.__enter__()
        return self

    def __exit__(self, *end: object) -> None:
        self._typing.__exit__(*end)

    def complete_and_run(self, line: str) -> list[str] | None:
        """Type a line, TAB and Enter. Return the arguments with which `recovery` ran, None if it did not.

        A second line, whose arguments are known, shows that the shell is through with the first one.
        """
        before = len(self._runs())
        self._typing.type(f"{line}\t\r")
        self._typing.type(f"recovery {END}\r")
        wait_until(lambda: self._runs()[before:][-1:] == [[END]], 60, f"the shell to run {line!r}")
        ran = self._runs()[before:-1]
        assert len(ran) < 2, ran
        return ran[0] if ran else None

    def _runs(self) -> list[list[str]]:
        self._typing.drain()
        return [json.loads(run) for run in self._noted.read_text().splitlines()] if self._noted.exists() else []
