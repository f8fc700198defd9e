"""The start of every process of a runtime on Ray: this file, run by its path before anything is imported.

It imports only the standard library, because no package may be importable yet::

    python -I -S launcher.py OPTIONS --run PROGRAM …
    python -I -S launcher.py OPTIONS --exec COMMAND …

- ``--role``: what the process will be; the environment variable ``SESSIONTREE_ROLE`` has it.
- ``--cwd``: its working directory, which must exist; never a workspace.
- ``--user-site``: the directory of the user's own installed distributions, if they are enabled.
- ``--reap``: this process becomes a reaper (``process_tree.py``) that keeps its reports in that directory,
  and a child of it continues here. Ray accepts that: a worker reports its process id when it registers.
- ``--note``: a file that gets a line, with the process's id and start, before anything can fail.
- ``--keep``: keep only harmless environment variables and these, separated by commas.
- ``--given``: with ``--keep``, a file of variables to set first, in the form of ``/proc/…/environ``.
- ``--confine``: the words up to ``--run`` or ``--exec`` are options of ``jail.py``.
- ``--run``: run this program in this process, with closed imports (``import_guard.py``): a script, ``-c``
  and code, or ``-m`` and a module.
- ``--exec``: become this command. If the process is confined, or the job has its own words that start
  Python, the command starts this file again with ``--run``.
"""

# Paths are text here: every start of a process pays for what this file imports.
# ruff: noqa: PTH100, PTH117, PTH118, PTH120, PTH123

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
"""Environment variable that gives a process its role."""
RAY_WORKER: Final = "default_worker.py"
"""Ray's program for actors. It imports PyArrow to pickle tables, which nobody here sends: 0.1 s and 30 MB."""
UNUSED: Final = ("requests", "jsonschema", "wcwidth", "yaml")
"""What Ray imports for its dashboard, its command line, TPUs and plugins, none of which runs here: 0.1 s and
8 MB."""
UNUSABLE: Final = 118
"""Exit code: the arguments are wrong, or the command can't be run. Others are those of ``jail.py``."""
REAPER_VARIABLE: Final = "SESSIONTREE_REAPER"
"""Environment variable that gives a process the id of its reaper."""
_HARMLESS_NAMES: Final = """
    PATH HOME USER LOGNAME SHELL TERM COLUMNS LINES NO_COLOR CI LANG LANGUAGE TZ TZDIR TMPDIR TEMP TMP
    VIRTUAL_ENV LD_LIBRARY_PATH SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE
    LC_ALL LC_ADDRESS LC_COLLATE LC_CTYPE LC_IDENTIFICATION LC_MEASUREMENT LC_MESSAGES LC_MONETARY LC_NAME
    LC_NUMERIC LC_PAPER LC_TELEPHONE LC_TIME
    XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_STATE_HOME XDG_RUNTIME_DIR XDG_CONFIG_DIRS XDG_DATA_DIRS
    PYTHONBREAKPOINT PYTHONDONTWRITEBYTECODE PYTHONHASHSEED PYTHONIOENCODING PYTHONUNBUFFERED PYTHONUTF8
    SESSIONTREE_JAIL SESSIONTREE_LOG SESSIONTREE_REAPER SESSIONTREE_ROLE
    RAY_ADDRESS RAY_AUTH_MODE RAY_AUTH_TOKEN RAY_AUTH_TOKEN_PATH RAY_BACKEND_LOG_LEVEL RAY_CLIENT_MODE
    RAY_CLOUD_INSTANCE_ID RAY_JOB_ID RAY_LD_PRELOAD_ON_WORKERS RAY_NODE_ID RAY_NODE_TYPE_NAME RAY_RAYLET_PID
    RAY_SESSION_DIR RAY_USAGE_STATS_ENABLED RAY_WORKER_ID
    CUDA_CACHE_PATH CUDA_DEVICE_ORDER CUDA_HOME CUDA_LAUNCH_BLOCKING CUDA_MODULE_LOADING CUDA_PATH
    CUDA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES NVIDIA_VISIBLE_DEVICES
    OMP_DYNAMIC OMP_NUM_THREADS OMP_PLACES OMP_PROC_BIND OMP_SCHEDULE OMP_STACKSIZE OMP_THREAD_LIMIT
    OMP_WAIT_POLICY MKL_DYNAMIC MKL_NUM_THREADS OPENBLAS_NUM_THREADS
    MALLOC_ARENA_MAX MALLOC_ARENA_TEST MALLOC_MMAP_MAX_ MALLOC_MMAP_THRESHOLD_ MALLOC_TOP_PAD_
    MALLOC_TRIM_THRESHOLD_
"""
HARMLESS: Final = frozenset(_HARMLESS_NAMES.split())
"""Environment variables that ``--keep`` always keeps, each by its name: none of them holds a key, except for
Ray's token, which a host forgets once it is connected."""
_SET_PARENT_DEATH_SIGNAL, _SET_CHILD_SUBREAPER = 1, 36
_PACKAGE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Start(NamedTuple):
    """The arguments."""

    role: str
    cwd: str
    user_site: str
    reports: str
    """Directory of the reaper's reports; empty = the process has no reaper."""
    note: str
    """File that gets a line for this process; empty = none."""
    keep: str | None
    """Variables that are kept in addition to the harmless ones; None = all are kept."""
    given: str
    """File of variables that are set; empty = none."""
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
        LaunchError: a word is unknown, a value is missing, or nothing is to be started.
    """
    found = {"--role": "", "--cwd": "", "--user-site": "", "--reap": "", "--note": "", "--given": ""}
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
            jail = _take_jail_options(rest)
        else:
            raise LaunchError(UNUSABLE, f"can't use the argument {word!r}")
    kind = rest.pop(0) if rest else ""
    if not rest:
        raise LaunchError(UNUSABLE, "nothing to start after '--run' or '--exec'")
    if not found["--role"] or not os.path.isabs(found["--cwd"]):
        raise LaunchError(UNUSABLE, "--role and --cwd, an absolute path, are needed")
    role, cwd, user_site, reports, note, given = found.values()
    return Start(role, cwd, user_site, reports, note, keep, given, jail, kind == "--run", rest)


def _take_jail_options(rest: list[str]) -> list[str]:
    """Take the jail's options off the front."""
    taken: list[str] = []
    while rest and rest[0] not in {"--run", "--exec"}:
        taken.append(rest.pop(0))
        if taken[-1] != "--best-effort" and rest:  # every other option has a value, which may look like ours
            taken.append(rest.pop(0))
    return taken


def load_neighbour(name: str, path: str) -> ModuleType:
    """Load a file of this package by its path, under its real name, without its package."""
    loader = SourceFileLoader(name, path)
    module = ModuleType(name)
    module.__file__, module.__loader__ = path, loader
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def begin(start: Start) -> NoReturn:
    """Start what the arguments say.

    Raises:
        LaunchError: it can't be started.
    """
    os.environ[ROLE_VARIABLE] = start.role
    guard = load_neighbour(
        "sessiontree.interpreter.import_guard", os.path.join(_PACKAGE, "interpreter", "import_guard.py")
    )
    # Before anything is started or loaded: PYTHON… variables would decide what every later interpreter
    # imports.
    guard.clean_variables()
    if start.keep is not None:
        keep_variables(start.keep.split(","), start.given)
    try:
        os.chdir(start.cwd)  # not made: a process that starts after its runtime was closed must leave nothing
    except OSError as error:
        raise LaunchError(UNUSABLE, f"can't work in {start.cwd!r}: {error}") from error
    if start.reports:
        # Before the jail, because the reaper must not inherit the confinement: it writes reports outside the
        # writable places.
        leave_to_a_reaper(start.reports)
    if start.note:
        # After the fork, because the process that continues here is the child, and its id is the one to note.
        note_me(start.note)
    if start.jail is not None:
        jail = load_neighbour("sessiontree.sandbox.jail", os.path.join(_PACKAGE, "sandbox", "jail.py"))
        try:
            jail.run([*start.jail, "--", *start.words])
        except jail.JailError as failure:
            raise LaunchError(*failure.args) from failure
    if start.is_script:
        if start.words[0].endswith("/" + RAY_WORKER):
            guard.start_quickly(without="pyarrow", late=UNUSED)
        guard.run(start.words, start.user_site)
        sys.exit()
    try:
        os.execvp(start.words[0], start.words)  # noqa: S606 - the words are the caller's own
    except OSError as error:
        raise LaunchError(UNUSABLE, f"can't run {start.words[0]!r}: {error}") from error


def set_variables(path: str) -> None:
    """Set the variables that a file holds.

    Raises:
        LaunchError: it can't be read.
    """
    try:
        with open(path, "rb") as file:
            words = file.read().split(b"\0")
    except OSError as error:
        raise LaunchError(UNUSABLE, f"can't read the variables in {path!r}: {error}") from error
    for word in words:
        name, equals, value = word.partition(b"=")
        if equals:
            os.environb[name] = value


def keep_variables(names: Sequence[str], given: str = "") -> None:
    """Set variables from a file; then remove those that are neither harmless nor named: they may hold keys.

    Raises:
        LaunchError: the file can't be read.
    """
    if given:
        set_variables(given)
    forget_variables([each for each in os.environ if each not in names and not is_harmless(each)])


def is_harmless(name: str) -> bool:
    """Whether an environment variable of this name holds no key."""
    return name in HARMLESS


def forget_variables(names: Sequence[str]) -> None:
    """Remove variables from this process's environment, and from the copy that the kernel shows.

    Source: proc_pid_stat(5), fields 50 and 51.
    """
    for name in names:
        os.environ.pop(name, None)
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b") ")[2].split()
    begin, end = int(fields[47]), int(fields[48])
    if begin == 0:  # the kernel does not report it, and shows no copy either
        return
    # Only the values are overwritten: moving anything in this block would move the strings to which libraries
    # hold pointers.
    gone, at = frozenset(map(os.fsencode, names)), begin
    for word in ctypes.string_at(begin, end - begin).split(b"\0"):
        begins, _, value = word.partition(b"=")
        if begins in gone:
            ctypes.memset(at + len(word) - len(value), 0, len(value))
        at += len(word) + 1


def leave_to_a_reaper(reports: str) -> None:
    """Continue in a child of this process; this process becomes the reaper of all that the child will start.

    The reaper is not in the host's process group, because Ray signals that group when the host has ended.

    Raises:
        LaunchError: the system can't start a process.
    """
    reaper = os.getpid()
    try:
        adopt_orphans()
        # Adopted first, so that a grandchild that loses its parent at once is not lost to the machine's first
        # process.
        child = os.fork()
        if child:
            _enter_a_group()
            program = os.path.join(os.path.dirname(__file__), "process_tree.py")
            os.execv(sys.executable, [sys.executable, "-I", "-S", program, str(child), reports])  # noqa: S606
        _call_prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    except OSError as error:
        raise LaunchError(UNUSABLE, f"can't start a host and its reaper: {error}") from error
    if os.getppid() != reaper:  # the reaper ended before the kernel had the request
        os.kill(os.getpid(), signal.SIGKILL)
    os.environ[REAPER_VARIABLE] = str(reaper)


def note_me(path: str) -> None:
    """Add this process to a file, with its id and start, so that its end is noticed before Ray notices it.

    Raises:
        LaunchError: it can't be written.
    """
    try:
        with open("/proc/self/stat", encoding="utf-8", errors="replace") as stat:
            started = stat.read().rsplit(") ", 1)[1].split()[19]
        # Several processes note themselves in the same file; O_APPEND keeps one line from overwriting
        # another.
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        note = os.open(path, flags, 0o600)
        try:
            os.write(note, f"{os.getpid()} {started}\n".encode("ascii"))
        finally:
            os.close(note)
    except OSError as error:
        raise LaunchError(UNUSABLE, f"can't note the process in {path!r}: {error}") from error


def adopt_orphans() -> None:
    """From now on, adopt the processes below this one whose parent has ended."""
    _call_prctl(_SET_CHILD_SUBREAPER, 1)


def _enter_a_group() -> None:
    """Enter a new process group, although this process leads another: a child makes the group, and ends."""
    leader = os.fork()
    if not leader:
        os.setpgid(0, 0)
        os._exit(0)
    os.waitid(os.P_PID, leader, os.WEXITED | os.WNOWAIT)  # not collected yet, so its group still exists
    os.setpgid(0, leader)
    os.waitpid(leader, 0)


def _call_prctl(option: int, argument: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, *map(ctypes.c_ulong, (argument, 0, 0, 0))) < 0:
        raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    try:
        begin(parse(sys.argv[1:]))
    except LaunchError as failure:
        code, reason = failure.args
        sys.stderr.write(f"sessiontree launcher: {reason}\n")
        sys.exit(code)
