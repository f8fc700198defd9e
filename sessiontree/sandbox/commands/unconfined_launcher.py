"""The process above an unconfined command: it starts it, reports its end, and ends what it leaves.

Run by its path, with only the standard library::

    python -I -S unconfined_launcher.py PLAN STATUS

It reports as the launcher of a sandbox does (``command_launcher.py``). Processes that lose their parent
become its children (``PR_SET_CHILD_SUBREAPER``), so a double fork hides nothing from it. When the command has
ended, or the process that started this one has, by any means, it kills everything below itself and ends. The
end of that process closes the other end of the socket for the reports.

Source: prctl(2), sigwaitinfo(2), poll(2).
"""

# Every start of a command pays for what this file imports.

from __future__ import annotations

import ctypes
import marshal
import os
import select
import signal
import socket
import struct
import sys

TYPE_CHECKING = False  # annotations are not evaluated here, and typing takes as long as the interpreter
if TYPE_CHECKING:
    from typing import Any, Final, NoReturn

_SET_PARENT_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
_SET_TERMINAL, _SET_WINDOW = 0x540E, 0x5414
LOOK_EVERY_S: Final = 0.2
"""How often it looks whether the process that started it still exists."""
_IGNORED: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _set(option: int, value: int) -> None:
    if _LIBC.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _open_terminal(size: tuple[int, int] | None) -> tuple[int, int]:
    if size is None:
        return -1, -1
    ours, commands = os.openpty()
    _LIBC.ioctl(commands, ctypes.c_ulong(_SET_WINDOW), struct.pack("HHHH", *size, 0, 0))
    return ours, commands


def start(plan: dict[str, Any], terminal: int) -> int:
    """Start the command in a session of its own; return its process id."""
    child = os.fork()
    if child:
        return child
    try:
        _set(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
        os.setsid()
        if terminal >= 0:
            _LIBC.ioctl(terminal, ctypes.c_ulong(_SET_TERMINAL), ctypes.c_int(0))
            for standard in (0, 1, 2):
                os.dup2(terminal, standard)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        for number in (signal.SIGPIPE, signal.SIGXFSZ, *_IGNORED):
            signal.signal(number, signal.SIG_DFL)
        os.execve(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606 - no shell but its own
    finally:
        os._exit(126)


def wait(child: int, status: socket.socket) -> str:
    """Wait until the command has ended, and return its report; empty = nobody reads reports any more."""
    watch = select.poll()
    watch.register(status, 0)  # only its other end's end
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, LOOK_EVERY_S)
        if watch.poll(0):
            return ""
        while True:
            try:
                ended, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return ""
            if ended == 0:
                break
            if ended == child:
                signalled = os.WIFSIGNALED(code)
                return f"signal {os.WTERMSIG(code)}" if signalled else f"exited {os.WEXITSTATUS(code)}"


def end_below() -> None:
    """Kill all processes below this one; returns when none is left."""
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123 - a Path loads more
            found = [int(pid) for pid in file.read().split()]
        for pid in found:  # nobody but this process collects them, so that an id is not used again meanwhile
            os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.01)


def main(plan_fd: int, status_fd: int) -> NoReturn:
    """Start the command and report."""
    os.set_inheritable(status_fd, False)
    # Blocked before the fork: a command that ends at once would otherwise be noticed only by the next regular
    # look.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    status = socket.socket(fileno=status_fd)
    with os.fdopen(plan_fd, "rb") as file:
        plan = marshal.load(file)  # noqa: S302 - made by the process that started this one
    try:
        _set(_SET_SUBREAPER, 1)
        os.chdir(plan["workdir"])
        ours, terminal = _open_terminal(plan["terminal"])
        child = start(plan, terminal)
    except OSError as error:
        # Cut before the line's end is added: a report without it is refused as unknown.
        status.sendall(f"{f'failed {error}'[:1000]}\n".encode(errors="replace"))
        os._exit(0)
    if terminal >= 0:
        os.close(terminal)
    _send_start(status, ours)
    report = wait(child, status)
    # Before the report: whoever reads it may rely on nothing of the command running any more.
    end_below()
    if report:
        status.sendall(f"{report}\n".encode())
    os._exit(0)


def _send_start(status: socket.socket, ours: int) -> None:
    """Report the start, with this end of the terminal if there is one, which is closed here."""
    if ours < 0:
        status.sendall(b"started\n")
        return
    status.sendmsg([b"started\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", ours))])
    os.close(ours)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
