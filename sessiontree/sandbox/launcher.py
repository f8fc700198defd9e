"""How every process of a runtime on Ray begins: this file, run by its path, before anything else is imported.

The standard library alone, as no package may be importable yet::

    python -I -S launcher.py OPTIONS --run PROGRAM …
    python -I -S launcher.py OPTIONS --exec COMMAND …

- ``--role``: what the process is going to be; it is in the environment as ``SESSIONTREE_ROLE`` then.
- ``--cwd``: its working directory, made where it is missing; never a workspace.
- ``--user-site``: the directory of the user's own installed distributions, where they count.
- ``--reap``: this process becomes a reaper (``process_tree.py``), whose reports are kept in that directory,
  and a child of it goes on here. Ray does not mind: a worker tells its process id when it registers.
- ``--note``: a file that gets a line, the process's id and its start, before anything can go wrong.
- ``--keep``: of the environment, only what is harmless goes on, and these variables, with commas between.
- ``--confine``: what follows, up to ``--run`` or ``--exec``, are options of ``jail.py``.
- ``--run``: be this program, in this very process, its imports closed (``import_guard.py``): a script, ``-c``
  and code, or ``-m`` and a module.
- ``--exec``: become this command. Where the process is confined, or the job has its own words that start
  Python, the command starts this file again with ``--run``.
"""

# Paths are text here: every start of a process pays for what this file imports.
# ruff: noqa: PTH100, PTH103, PTH117, PTH118, PTH120, PTH123

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
HARMLESS: Final = frozenset(
    (
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TERM", "COLUMNS", "LINES", "NO_COLOR", "CI"),
        *("LANG", "LANGUAGE", "TZ", "TZDIR", "TMPDIR", "TEMP", "TMP", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    )
)
"""Environment variables that hosts get with ``--keep``, whatever it names: none of them holds a key."""
HARMLESS_BEGINNINGS: Final = (
    *("LC_", "XDG_", "PYTHON", "SESSIONTREE_", "RAY_"),
    *("CUDA_", "NVIDIA_", "OMP_", "MKL_", "OPENBLAS_", "MALLOC_"),
)
"""How the names of others begin. Of Python's own only those are left that name no code."""
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Start(NamedTuple):
    """What the arguments say."""

    role: str
    cwd: str
    user_site: str
    reports: str
    """Where the reaper's reports are kept; empty = there is none."""
    note: str
    """File that gets a line for this process; empty = none."""
    keep: str | None
    """Variables that are kept beside the harmless ones; None = all are."""
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
    found = {"--role": "", "--cwd": "", "--user-site": "", "--reap": "", "--note": ""}
    keep: str | None = None
    rest = list(words)
    jail: list[str] | None = None
    while rest and rest[0] not in {"--run", "--exec"}:
        word = rest.pop(0)
        if word in found and rest:
            found[word] = rest.pop(0)
        elif word == "--keep" and rest:
            keep = rest.pop(0)
        elif word == "--confine":
            jail = _options_of_jail(rest)
        else:
            raise LaunchError(UNUSABLE, f"can't use the argument {word!r}")
    kind = rest.pop(0) if rest else ""
    if not rest:
        raise LaunchError(UNUSABLE, "nothing to start after '--run' or '--exec'")
    if not found["--role"] or not os.path.isabs(found["--cwd"]):
        raise LaunchError(UNUSABLE, "--role and --cwd, an absolute path, are needed")
    role, cwd, user_site, reports, note = found.values()
    return Start(role, cwd, user_site, reports, note, keep, jail, kind == "--run", rest)


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
    if start.keep is not None:
        keep_variables(start.keep.split(","))
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


def keep_variables(names: Sequence[str]) -> None:
    """Take every variable away that is neither harmless nor named: programs have their keys there."""
    kept = HARMLESS.union(names)
    forget_variables(
        [each for each in os.environ if each not in kept and not each.startswith(HARMLESS_BEGINNINGS)]
    )


def forget_variables(names: Sequence[str]) -> None:
    """Take variables from this process's environment, and from what the kernel shows of its beginning.

    Source: proc_pid_stat(5), fields 50 and 51.
    """
    for name in names:
        os.environ.pop(name, None)
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    begin, end = int(fields[47]), int(fields[48])
    if begin == 0:  # the kernel does not say, and shows nothing either
        return
    gone, at = frozenset(map(os.fsencode, names)), begin
    for word in ctypes.string_at(begin, end - begin).split(b"\0"):
        begins, _, value = word.partition(b"=")
        if begins in gone:
            ctypes.memset(at + len(word) - len(value), 0, len(value))
        at += len(word) + 1


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


if __name__ == "__main__":
    try:
        begin(parse(sys.argv[1:]))
    except LaunchError as failure:
        code, reason = failure.args
        sys.stderr.write(f"sessiontree launcher: {reason}\n")
        sys.exit(code)
