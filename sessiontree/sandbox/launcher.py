"""How every process of a runtime on Ray begins: this file, run by its path, before anything else is imported.

The standard library alone, as no package may be importable yet::

    python -I -S launcher.py --role ROLE --cwd DIRECTORY [--reap PLACE] [--confine WORDS…] --run PROGRAM …
    python -I -S launcher.py --role ROLE --cwd DIRECTORY [--reap PLACE] [--confine WORDS…] --exec COMMAND …

- ``--role``: what the process is going to be; it is in the environment as ``SESSIONTREE_ROLE`` then.
- ``--cwd``: its working directory, made where it is missing; never a workspace.
- ``--reap``: this process becomes a reaper (``process_tree.py``), whose reports are kept in that directory,
  and a child of it goes on here. Ray does not mind: a worker tells its process id when it registers.
- ``--note``: a file that gets a line, the process's id and its start, before anything can go wrong.
- ``--confine``: what follows, up to ``--run`` or ``--exec``, are options of ``jail.py``.
- ``--run``: be this program, in this very process: a script, ``-c`` and code, or ``-m`` and a module.
- ``--exec``: become this command. Where the process is confined, or the job has its own words that start
  Python, the command starts this file again with ``--run``.

Words for Python itself before a program (Ray passes on ``-s`` and ``-S``) are dropped: stricter ones hold.
"""

# Paths are text here: every start of a process pays for what this file imports.
# ruff: noqa: PTH103, PTH117, PTH118, PTH120, PTH123

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import site
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
DROPPED: Final = frozenset({"-s", "-S", "-I", "-E", "-P", "-B", "-u"})
HARMLESS: Final = frozenset({"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONIOENCODING"})
"""Variables of Python that name no code; every other one is taken away."""


class Start(NamedTuple):
    """What the arguments say."""

    role: str
    cwd: str
    reports: str
    """Where the reaper's reports are kept; empty = there is none."""
    note: str
    """File that gets a line for this process; empty = none."""
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
    found = {"--role": "", "--cwd": "", "--reap": "", "--note": ""}
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
    while kind == "--run" and rest and rest[0] in DROPPED:
        rest.pop(0)
    if not rest:
        raise LaunchError(UNUSABLE, "nothing to start after '--run' or '--exec'")
    if not found["--role"] or not os.path.isabs(found["--cwd"]):
        raise LaunchError(UNUSABLE, "--role and --cwd, an absolute path, are needed")
    told = (found["--role"], found["--cwd"], found["--reap"], found["--note"])
    return Start(*told, jail, kind == "--run", rest)


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
    for name in [name for name in os.environ if name.startswith("PYTHON") and name not in HARMLESS]:
        del os.environ[name]
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    try:
        os.makedirs(start.cwd, 0o700, exist_ok=True)
        os.chdir(start.cwd)
    except OSError as error:
        raise LaunchError(UNUSABLE, f"can't work in {start.cwd!r}: {error}") from error
    if start.reports:
        leave_to_a_reaper(start.reports)
    if start.note:
        note_me(start.note)
    if start.jail is not None:
        jail = neighbour("sessiontree.sandbox.jail", os.path.join(os.path.dirname(__file__), "jail.py"))
        try:
            jail.run([*start.jail, "--", *start.words])
        except jail.JailError as failure:
            raise LaunchError(*failure.args) from failure
    if start.is_script:
        run(start.words)
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


def note_me(path: str) -> None:
    """Add this process to a file: its id and its start, so that its end is seen before Ray knows it.

    Raises:
        LaunchError: it can't be written.
    """
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as stat:
            started = stat.read().rsplit(") ", 1)[1].split()[19]
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        note = os.open(path, flags, 0o600)
        try:
            os.write(note, f"{os.getpid()} {started}\n".encode("ascii"))
        finally:
            os.close(note)
    except OSError as error:
        raise LaunchError(UNUSABLE, f"can't note the process in {path!r}: {error}") from error


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


def run(words: list[str]) -> NoReturn:
    """Be a program: its modules come from the environment this interpreter belongs to."""
    site.main()  # with -S nothing has done so yet
    kind, main = words[0], ModuleType("__main__")
    if kind == "-m":
        sys.argv[:] = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        sys.exit()
    if kind == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        code = compile(words[1], "<string>", "exec")
    else:
        sys.argv[:] = words
        main.__file__ = kind
        with open(kind, "rb") as file:
            code = compile(file.read(), kind, "exec")
    sys.modules["__main__"] = main
    exec(code, main.__dict__)  # noqa: S102 - the program is the caller's own
    sys.exit()


if __name__ == "__main__":
    try:
        begin(parse(sys.argv[1:]))
    except LaunchError as failure:
        code, reason = failure.args
        sys.stderr.write(f"sessiontree launcher: {reason}\n")
        sys.exit(code)
