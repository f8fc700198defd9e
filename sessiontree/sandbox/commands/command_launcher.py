"""The first process of a command's sandbox: it confines itself, starts the command, and reports how it ended.

The program ``BOOT`` runs it inside the namespaces that bubblewrap made, with only the standard library.
This file arrives compiled, followed by the plan, because compiling takes as long as starting the
interpreter. ``main`` writes lines to a descriptor: ``started``, then the command's end, ``exited CODE`` or
``signal NUMBER``; or only ``failed REASON`` if the command was not started. When the first process of a
namespace ends, the kernel ends all others, so nothing that the command left running remains.

Before anything else is started, this process becomes one that nobody inside may look into (it is not
dumpable). Otherwise the command, a process of the same user, could reach the descriptor of the reports by
``/proc/1/fd/N`` and write its own. From then on an unprivileged user outside can't open what the kernel
counts for this process, which inherits the counts of those that lost their parent. So it is opened before,
and sent along with ``started``.

A command that runs in a terminal gets one that is made here, in the sandbox's own file system of terminals.
Its other end is sent along with ``started``, before the counts.

After ``started``, a SIGTERM from outside is passed on to every process inside, whatever its parent is and
however fast processes are made, and this process waits until all have ended. Without its own handler the
signal would not reach it.

Source: landlock(7), seccomp(2), prctl(2), pid_namespaces(7), getrlimit(2), kill(2), sched(7).
"""

# Every start of a command pays for what this file imports.
# ruff: noqa: PTH109, PTH123

from __future__ import annotations

import _ctypes  # what ctypes is made of: all of it takes 3 ms more, half as long as a sandbox takes
import _signal  # type: ignore[import-not-found]  # what signal is made of, without enum: that takes 4 ms
import _socket
import os
import resource
import sys

# Annotations are not evaluated here, and typing with what it loads takes 10 ms: half of the whole start.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final, NoReturn

BOOT: Final = """
import marshal, sys
names = {"__name__": "command_launcher"}
with open(int(sys.argv[1]), "rb") as file:
    exec(marshal.load(file), names)
    plan = marshal.load(file)
names["main"](plan, int(sys.argv[2]))
"""
"""Arguments: a descriptor with this file's code and the plan, marshalled; a descriptor for the reports."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_SET_DUMPABLE: Final = 4
_SET_TERMINAL, _SET_WINDOW = 0x540E, 0x5414
MOST_REASON_CHARS: Final = 1000
_OF_A_FILE: Final = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_DIRECTORY: Final = 0o040000
_KIND: Final = 0o170000
_IGNORED_BY_PYTHON: Final = (13, 25)  # SIGPIPE, SIGXFSZ


_FOREIGN: Final[Any] = _ctypes
"""Its types are made when this runs, as ctypes makes them."""


def _derive(base: Any, **members: Any) -> Any:
    return type(base)("_Derived", (base,), members)


_LONG: Final = _derive(_FOREIGN._SimpleCData, _type_="l")  # noqa: SLF001 - as ctypes does
_BYTE: Final = _derive(_FOREIGN._SimpleCData, _type_="c")  # noqa: SLF001 - as above
_FLAGS: Final = _FOREIGN.FUNCFLAG_CDECL | _FOREIGN.FUNCFLAG_USE_ERRNO
_FUNCTION: Final = _derive(_FOREIGN.CFuncPtr, _flags_=_FLAGS, _restype_=_LONG)
_LIBRARY: Final = _FOREIGN.dlopen(None, 0)
_SYSCALL: Final = _FUNCTION(_FOREIGN.dlsym(_LIBRARY, "syscall"))
_PRCTL: Final = _FUNCTION(_FOREIGN.dlsym(_LIBRARY, "prctl"))
_IOCTL: Final = _FUNCTION(_FOREIGN.dlsym(_LIBRARY, "ioctl"))
_SIGNAL: Final = _FUNCTION(_FOREIGN.dlsym(_LIBRARY, "signal"))


def _call(function: Any, *arguments: int | bytes | None) -> int:
    """Call a function of the C library; a number is a long, bytes are a pointer to them.

    Raises:
        OSError: it answered that it failed.
    """
    answer: int = function(*(_LONG(word) if isinstance(word, int) else word for word in arguments))
    if answer & 1 << 31:  # -1, also of a function that returns an int
        raise OSError(_FOREIGN.get_errno(), os.strerror(_FOREIGN.get_errno()))
    return answer


def _pack(number: int, size: int) -> bytes:
    """Return a number as this machine keeps it in so many bytes."""
    return number.to_bytes(size, sys.byteorder)


def _limit(plan: dict[str, Any]) -> None:
    """Limit what each process may use, and how many there may be."""
    if plan["pid_max"] and os.getpid() == 1:  # else it would be the machine's own
        with open("/proc/sys/kernel/pid_max", "w", encoding="ascii") as file:
            file.write(str(plan["pid_max"]))
    for number, soft, hard in plan["limits"]:
        most = resource.getrlimit(number)[1]
        if most == resource.RLIM_INFINITY:
            most = hard
        resource.setrlimit(number, (min(soft, most), min(hard, most)))


def _restrict_files(attributes: bytes, rules: list[tuple[str, int]]) -> None:
    """Restrict this process and everything it starts to what the rules allow, permanently."""
    ruleset = _call(_SYSCALL, _CREATE_RULESET, attributes, len(attributes), 0)
    for path, rights in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        if os.fstat(descriptor).st_mode & _KIND != _DIRECTORY:
            rights &= _OF_A_FILE
        _call(_SYSCALL, _ADD_RULE, ruleset, 1, _pack(rights, 8) + _pack(descriptor, 4), 0)
        os.close(descriptor)
    _call(_SYSCALL, _RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _filter_calls(program: bytes) -> None:
    kind = _derive(_FOREIGN.Array, _type_=_BYTE, _length_=len(program))
    code = kind.from_buffer_copy(program)  # at an address that the kernel can read
    filters = _pack(len(program) // 8, 8) + _pack(_FOREIGN.addressof(code), 8)
    _call(_PRCTL, _SET_SECCOMP, _FILTER, filters)


def _hide() -> None:
    """Close this process's descriptors and memory to every process inside.

    A program that a process becomes later is open to its own user again.
    """
    _call(_PRCTL, _SET_DUMPABLE, 0, 0, 0, 0)


def confine(plan: dict[str, Any]) -> None:
    """Confine this process as planned, and change to the directory where the command starts.

    Raises:
        OSError: the kernel refused a part of it, or the directory does not exist.
    """
    # Before the file rules, because the largest process id is written to a file of /proc that they deny.
    _limit(plan)
    _call(_PRCTL, _SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _restrict_files(plan["ruleset"], plan["rules"])
    _filter_calls(plan["filter"])
    os.chdir(plan["workdir"])
    # Checked after the change of directory, by where it led: a link could be replaced between a check of the
    # path and its use.
    here, top = os.getcwd(), plan["workspace"]
    if here != top and not here.startswith(top.rstrip("/") + "/"):
        raise PermissionError(1, "it leads outside the workspace", plan["workdir"])


def _open_terminal(size: tuple[int, int] | None) -> tuple[int, int]:
    """Return the two ends of a new terminal of so many rows and columns: ours and its; -1 = none."""
    if size is None:
        return -1, -1
    ours, commands = os.openpty()
    _call(_IOCTL, commands, _SET_WINDOW, b"".join(_pack(each, 2) for each in (*size, 0, 0)))
    return ours, commands


def _enter(terminal: int) -> None:
    """Make a terminal that of this process's session, and its input and output."""
    _call(_IOCTL, terminal, _SET_TERMINAL, 0)
    for standard in (0, 1, 2):
        os.dup2(terminal, standard)


def start(plan: dict[str, Any], terminal: int = -1) -> tuple[int, int]:
    """Start the command's process; return its id, and a descriptor: closing it lets the command begin."""
    held, hold = os.pipe()
    child = os.fork()
    if child:
        os.close(held)
        return child, hold
    try:
        os.close(hold)
        _give_way()
        if terminal >= 0:
            _enter(terminal)
        # Blocks until the launcher closes the other end: a command that began earlier could end before its
        # start was reported.
        os.read(held, 1)
        for number in _IGNORED_BY_PYTHON:
            # Python ignores these and a new program inherits that; a pipeline would then never end by a
            # closed pipe.
            _SIGNAL(_LONG(number), None)
        os.execve(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606 - no shell but its own
    finally:
        os._exit(126)


def _give_way() -> None:
    """From now on, run only while no other process of the machine needs the processor.

    The command gets a session of its own, so that the launcher stays fast; the watch outside gives that
    session the smallest share of the processor (``command_bounds.py``).
    """
    os.setsid()
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:  # a kernel without this policy still bounds its time
        return


def wait(child: int, hold: int, status_fd: int, sent: tuple[int, ...] = ()) -> None:
    """Let the command begin, wait for it and report how it ended; collect the processes it left behind.

    After a request to end, wait for all other processes too: they may have work to finish.
    """
    asked = False

    def ask(number: int, frame: object) -> None:
        nonlocal asked
        if os.getpid() == 1 and not asked:  # else "all" would be the machine's
            asked = True
            try:
                os.kill(-1, number)
            except ProcessLookupError:  # it ended just now
                return

    _signal.signal(_signal.SIGTERM, ask)
    _report_start(status_fd, sent)
    os.close(hold)  # it can be asked to end before it can do anything
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if ended == child and os.WIFSIGNALED(status):
            _report(status_fd, f"signal {os.WTERMSIG(status)}")
        elif ended == child:
            _report(status_fd, f"exited {os.WEXITSTATUS(status)}")
        if ended == child and not asked:
            return


def _report(status_fd: int, line: str) -> None:
    os.write(status_fd, f"{line}\n".encode(errors="replace"))


def _report_start(status_fd: int, sent: tuple[int, ...]) -> None:
    """Report the start, and send descriptors with it, which are closed here."""
    if not sent:
        _report(status_fd, "started")
        return
    status = _socket.socket(fileno=os.dup(status_fd))
    packed = b"".join(_pack(each, 4) for each in sent)
    status.sendmsg([b"started\n"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)])
    status.close()
    for descriptor in sent:
        os.close(descriptor)


def _open_counts() -> int:
    """Open what the kernel counts for this process; -1 if it does not count."""
    try:
        return os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def main(plan: dict[str, Any], status_fd: int) -> NoReturn:
    """Confine this process, start the command and report."""
    os.set_inheritable(status_fd, False)
    # Before hiding: afterwards the kernel gives these files to root, and this process could not open its own.
    counts = _open_counts()
    try:
        _hide()
        ours, terminal = _open_terminal(plan["terminal"])
        confine(plan)
        child, hold = start(plan, terminal)
    except OSError as error:
        _report(status_fd, f"failed {error}"[:MOST_REASON_CHARS])
    else:
        if terminal >= 0:
            os.close(terminal)
        wait(child, hold, status_fd, tuple(each for each in (ours, counts) if each >= 0))
    # Not sys.exit: no cleanup of Python may delay the end of this process, which ends all others.
    os._exit(0)
