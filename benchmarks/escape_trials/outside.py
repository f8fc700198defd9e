"""What is outside a command's sandbox, made to be attacked: files, sockets, a process; and how it fares."""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sessiontree.sandbox.self_test import Trace, collect_traces, find_differences

SETTINGS: Final = ("core_pattern", "core_uses_pid", "pid_max")
"""Of the machine's kernel; no attempt may change them."""
EVERYBODYS: Final = "/tmp"  # noqa: S108 - only names nobody can guess are made there
GIT_SETTINGS: Final = "[core]\n\tbare = false\n"
TOKEN_VARIABLE: Final = "SESSIONTREE_TRIAL_TOKEN"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class Outside:
    """A place with a workspace in it, and around it what no command may reach."""

    root: Path
    """Holds ``workspace``, ``kept`` with ``victim`` and ``token``, and the sockets."""
    facts: dict[str, Any]
    """What an attempt learns."""
    sockets: Sequence[socket.socket]
    before: tuple[Trace, ...]
    settings: tuple[str, ...]
    process: subprocess.Popen[bytes]

    @property
    def workspace(self) -> Path:
        """Where commands run."""
        return self.root / "workspace"

    @property
    def hidden(self) -> Path:
        """A directory in the workspace that no command may see."""
        return self.workspace / "runtime" / "state"

    def changes(self) -> list[str]:
        """Return one line for everything outside that is not as it was."""
        found = find_differences(self.before, collect_traces(self.root / "kept"))
        found += [
            f"{name} is not as it was"
            for name, was in zip(SETTINGS, self.settings, strict=True)
            if _setting(name) != was
        ]
        found += [f"{path} appeared" for path in self._planted() if path.exists()]
        heard = select.select(self.sockets, (), (), 0)[0]
        found += [f"somebody spoke to {sock.getsockname()!r}" for sock in heard]
        if self.process.poll() is not None:
            found.append("the process outside has ended")
        if not (self.hidden / "secret").exists():
            found.append("the hidden directory was moved")
        git = Path(self.facts["git"])
        if not (git / "hooks").is_dir() or list((git / "hooks").iterdir()):
            found.append("the repository's hooks are not as they were")
        if not (git / "config").is_file() or (git / "config").read_text("utf-8") != GIT_SETTINGS:
            found.append("the repository's settings are not as they were")
        found += [
            f"{path} runs as its owner or group"
            for path in self.workspace.rglob("*")
            if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o6000
        ]
        return found

    def _planted(self) -> list[Path]:
        name = self.facts["name"]
        return [Path("/etc", name), Path("/usr", name)]


@contextlib.contextmanager
def outside(owner: int | None = None) -> Iterator[Outside]:
    """Make it all, and take it away at the end.

    Args:
        owner: User and group that get the files, in a place all users reach; None = this process's own.
    """
    name = f"sessiontree-trial-{secrets.token_hex(4)}"
    # Short, for a socket's path may have 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="trial-", dir=None if owner is None else EVERYBODYS))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, root)
        _make_files(root, owner)
        sockets = [stack.enter_context(sock) for sock in _listening(root, name)]
        process = stack.enter_context(
            subprocess.Popen(
                ["/bin/sh", "-c", "read line", name],
                stdin=subprocess.PIPE,
                env={TOKEN_VARIABLE: name},
                user=owner,
                group=owner,
                extra_groups=None if owner is None else (),
            )
        )
        stack.callback(process.kill)
        facts = {
            "name": name,
            "mark": name,
            "pid": process.pid,
            "workspace": str(root / "workspace"),
            "victim": str(root / "kept" / "victim"),
            "token": str(root / "kept" / "token"),
            "git": str(root / "workspace" / "project" / ".git"),
            "secret": str(root / "workspace" / "runtime" / "state" / "secret"),
            "socket": str(root / "kept" / "socket"),
            "near_socket": str(root / "workspace" / "socket"),
            "near_datagrams": str(root / "workspace" / "datagrams"),
            "tcp_port": sockets[0].getsockname()[1],
            "udp_port": sockets[1].getsockname()[1],
        }
        settings = tuple(map(_setting, SETTINGS))
        yield Outside(root, facts, sockets, collect_traces(root / "kept"), settings, process)


def _make_files(root: Path, owner: int | None) -> None:
    state = root / "workspace" / "runtime" / "state"
    state.mkdir(parents=True)
    (state / "secret").write_text("hidden")
    git = root / "workspace" / "project" / ".git"
    for name in ("hooks", "objects", "refs"):
        (git / name).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "config").write_text(GIT_SETTINGS)
    (root / "kept").mkdir()
    for name in ("victim", "token"):
        (root / "kept" / name).write_text(f"must stay as it is: {name}\n")
    root.chmod(0o755)
    if owner is not None:
        for path in [root, *root.rglob("*")]:
            os.chown(path, owner, owner)


def _listening(root: Path, name: str) -> list[socket.socket]:
    made = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
    made[1].bind(("127.0.0.1", 0))
    for address in (str(root / "kept" / "socket"), str(root / "workspace" / "socket"), "\0" + name):
        server = socket.socket(socket.AF_UNIX)
        server.bind(address)
        server.listen()
        if not address.startswith("\0"):
            Path(address).chmod(0o777)
        made.append(server)
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(str(root / "workspace" / "datagrams"))
    (root / "workspace" / "datagrams").chmod(0o777)
    return [*made, datagrams]


def _setting(name: str) -> str:
    return Path("/proc/sys/kernel", name).read_text("utf-8")
