"""How every process of a runtime on Ray begins: this file, run by its path, before anything else is imported.

The standard library alone, as no package may be importable yet::

    python -I -S launcher.py OPTIONS --run PROGRAM …
    python -I -S launcher.py OPTIONS --exec COMMAND …

- ``--role``: what the process is going to be; it is in the environment as ``SESSIONTREE_ROLE`` then.
- ``--cwd``: its working directory, made where it is missing; never a workspace.
- ``--user-site``: the directory of the user's own installed distributions, where they count.
- ``--reap``: this process becomes a reaper (``process_tree.py``), whose reports are kept in that directory,
  and a child of it goes on here. Ray does not mind: a worker tells its process id when it registers.
- ``--confine``: what follows, up to ``--run`` or ``--exec``, are options of ``jail.py``.
- ``--run``: be this program, in this very process, its imports closed (``import_guard.py``): a script, ``-c``
  and code, or ``-m`` and a module.
- ``--exec``: become this command. Where the process is confined, or the job has its own words that start
  Python, the command starts this file again with ``--run``.
"""

# Paths are text here: every start of a process pays for what this file imports.
# ruff: noqa: PTH100, PTH103, PTH117, PTH118, PTH120

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Final, NamedTuple, NoReturn

ROLE_VARIABLE: Final = "SESSIONTREE_ROLE"
"""Environment variable in which a process finds what it was started as."""
UNUSABLE: Final = 118
"""Exit code: the arguments are wrong, or the command can't be run. Others are those of ``jail.py``."""
REAPER_VARIABLE: Final = "SESSIONTREE_REAPER"
"""Environment variable in which a process finds its reaper's id."""
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Start(NamedTuple):
    """What the arguments say."""

    role: str
    cwd: str
    user_site: str
    reports: str
    """Where the reaper's reports are kept; empty = there is none."""
    jail: list[str] | None
    """Options of ``jail.py``; None = nothing is confined here."""
    is_script: bool
    words: list[str]
    """The script and its arguments, or the command."""


class LaunchError(Exception):
    """The process can't be started as its arguments say; exit code and reason."""


def parse(words: Sequence[str]) -> Start:
    """Read the arguments.

    Raises:
        LaunchError: a word is unknown, a value missing, or there is nothing to start.
    """
    found = {"--role": "", "--cwd": "", "--user-site": "", "--reap": ""}
    rest = list(words)
    jail: list[str] | None = None
    while rest and rest[0] not in {"--run", "--exec"}:
        word = rest.pop(0)
        if word in found and rest:
            found[word] = rest.pop(0)
        elif word == "--confine":
            jail = _options_of_jail(rest)
        else:
            raise LaunchError(UNUSABLE, f"can't use the argument {word!r}")
    kind = rest.pop(0) if rest else ""
    if not rest:
        raise LaunchError(UNUSABLE, "nothing to start after '--run' or '--exec'")
    if not found["--role"] or not os.path.isabs(found["--cwd"]):
        raise LaunchError(UNUSABLE, "--role and --cwd, an absolute path, are needed")
    role, cwd, user_site, reports = found.values()
    return Start(role, cwd, user_site, reports, jail, kind == "--run", rest)


def _options_of_jail(rest: list[str]) -> list[str]:
    """Take the jail's options off the front."""
    taken: list[str] = []
    while rest and rest[0] not in {"--run", "--exec"}:
        taken.append(rest.pop(0))
        if taken[-1] != "--best-effort" and rest:  # every other option has a value, which may look like ours
            taken.append(rest.pop(0))
    return taken


def neighbour(name: str, path: str) -> ModuleType:
    """Load a file of this package by its path, under its real name, without its package."""
    loader = SourceFileLoader(name, path)
    module = ModuleType(name)
    module.__file__, module.__loader__ = path, loader
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def begin(start: Start) -> NoReturn:
    """Be what the arguments say.

    Raises:
        LaunchError: it can't be.
    """
    os.environ[ROLE_VARIABLE] = start.role
    guard = neighbour(
        "sessiontree.interpreter.import_guard", os.path.join(_PACKAGE, "interpreter", "import_guard.py")
    )
    guard.clean_variables()
    try:
        os.makedirs(start.cwd, 0o700, exist_ok=True)
        os.chdir(start.cwd)
    except OSError as error:
        raise LaunchError(UNUSABLE, f"can't work in {start.cwd!r}: {error}") from error
    if start.reports:
        leave_to_a_reaper(start.reports)
    if start.jail is not None:
        jail = neighbour("sessiontree.sandbox.jail", os.path.join(_PACKAGE, "sandbox", "jail.py"))
        try:
            jail.run([*start.jail, "--", *start.words])
        except jail.JailError as failure:
            raise LaunchError(*failure.args) from failure
    if start.is_script:
        guard.run(start.words, start.user_site)
        sys.exit()
    try:
        os.execvp(start.words[0], start.words)  # noqa: S606 - the words are the caller's own
    except OSError as error:
        raise LaunchError(UNUSABLE, f"can't run {start.words[0]!r}: {error}") from error


def leave_to_a_reaper(reports: str) -> None:
    """Go on in a child of this process, which becomes the reaper of all that the child will start.

    The reaper is in no process group of the host's: Ray signals that group when the host has ended.

    Raises:
        LaunchError: the system starts no process.
    """
    reaper = os.getpid()
    try:
        adopt_orphans()
        child = os.fork()
        if child:
            _enter_a_group()
            program = os.path.join(os.path.dirname(__file__), "process_tree.py")
            os.execv(sys.executable, [sys.executable, "-I", "-S", program, str(child), reports])  # noqa: S606
        _control(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    except OSError as error:
        raise LaunchError(UNUSABLE, f"can't start a host and its reaper: {error}") from error
    if os.getppid() != reaper:  # it ended before that was known
        os.kill(os.getpid(), signal.SIGKILL)
    os.environ[REAPER_VARIABLE] = str(reaper)


def adopt_orphans() -> None:
    """From now on, be the parent of what is started below this process and left by its own parent."""
    _control(_SET_CHILD_SUBREAPER, 1)


def _enter_a_group() -> None:
    """Enter a process group of one's own, though one leads another: a child makes it, and ends."""
    leader = os.fork()
    if not leader:
        os.setpgid(0, 0)
        os._exit(0)
    os.waitid(os.P_PID, leader, os.WEXITED | os.WNOWAIT)  # not collected yet, so its group is still there
    os.setpgid(0, leader)
    os.waitpid(leader, 0)


def _control(option: int, argument: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, *map(ctypes.c_ulong, (argument, 0, 0, 0))) < 0:
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    try:
        begin(parse(sys.argv[1:]))
    except LaunchError as failure:
        code, reason = failure.args
        sys.stderr.write(f"sessiontree launcher: {reason}\n")
        sys.exit(code)
