"""The first process of a command's sandbox: it confines itself, starts the command, and tells how it ended.

Run inside the namespaces that bubblewrap made, with the standard library alone, by the line ``BOOT``: this
file comes compiled, with the plan behind it, because compiling takes as long as starting the interpreter.
``main`` writes lines to a descriptor: ``started``, and how it ended, ``exited CODE`` or ``signal NUMBER``; or
``failed REASON`` alone, where the command was not started. As the first process of its namespace it takes all
others with it when it ends; whatever the command left running is gone then.

From ``started`` on, a SIGTERM from outside goes on to every process inside, whoever its parent is and however
fast they are made, and this one waits until all have ended. Without its own handler none would reach it.

Source: landlock(7), seccomp(2), prctl(2), pid_namespaces(7), getrlimit(2), kill(2), sched(7).
"""

# Every start of a command pays for what this file imports.
# ruff: noqa: PTH109, PTH123

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # what signal is made of, without enum: that takes 4 ms
import ctypes
import os
import resource
import struct
from typing import Any, Final, NoReturn

BOOT: Final = """
import marshal, sys
names = {"__name__": "command_launcher"}
with open(int(sys.argv[1]), "rb") as file:
    exec(marshal.load(file), names)
    plan = marshal.load(file)
names["main"](plan, int(sys.argv[2]))
"""
"""Arguments: a descriptor with this file's code and the plan, marshalled; one for the line that is told."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_SET_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_OF_A_FILE: Final = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15
_DIRECTORY: Final = 0o040000
_KIND: Final = 0o170000
_IGNORED_BY_PYTHON: Final = (13, 25)  # SIGPIPE, SIGXFSZ
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: int | bytes | None) -> int:
    words = [ctypes.c_long(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in arguments]
    return _checked(_LIBC.syscall(ctypes.c_long(number), *words))


def _checked(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


def _limit(plan: dict[str, Any]) -> None:
    """Bound what each process may use, and how many there may be."""
    if plan["pid_max"] and os.getpid() == 1:  # else it would be the machine's own
        with open("/proc/sys/kernel/pid_max", "w", encoding="ascii") as file:
            file.write(str(plan["pid_max"]))
    for number, soft, hard in plan["limits"]:
        most = resource.getrlimit(number)[1]
        if most == resource.RLIM_INFINITY:
            most = hard
        resource.setrlimit(number, (min(soft, most), min(hard, most)))


def _restrict_files(attributes: bytes, rules: list[tuple[str, int]]) -> None:
    """Let this process and all it starts reach only what the rules allow, for good."""
    ruleset = _call(_CREATE_RULESET, attributes, len(attributes), 0)
    for path, rights in rules:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        if os.fstat(descriptor).st_mode & _KIND != _DIRECTORY:
            rights &= _OF_A_FILE
        _call(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, descriptor), 0)
        os.close(descriptor)
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _filter_calls(program: bytes) -> None:
    code = ctypes.create_string_buffer(program, len(program))
    filters = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _checked(_LIBC.prctl(_SET_SECCOMP, ctypes.c_ulong(_FILTER), ctypes.c_char_p(filters)))


def confine(plan: dict[str, Any]) -> None:
    """Confine this process as planned, and go where the command starts.

    Raises:
        OSError: the kernel refused a part of it, or the directory is not there.
    """
    _limit(plan)
    _checked(_LIBC.prctl(_SET_NO_NEW_PRIVILEGES, *map(ctypes.c_ulong, (1, 0, 0, 0))))
    _restrict_files(plan["ruleset"], plan["rules"])
    _filter_calls(plan["filter"])
    os.chdir(plan["workdir"])
    here, top = os.getcwd(), plan["workspace"]
    if here != top and not here.startswith(top.rstrip("/") + "/"):
        raise PermissionError(1, "it leads outside the workspace", plan["workdir"])


def start(plan: dict[str, Any]) -> int:
    """Start the command; returns its id."""
    child = os.fork()
    if child:
        return child
    try:
        _give_way()
        for number in _IGNORED_BY_PYTHON:
            _LIBC.signal(number, None)
        os.execve(plan["command"][0], plan["command"], plan["environment"])  # noqa: S606 - no shell but its own
    finally:
        os._exit(126)


def _give_way() -> None:
    """Run from now on only while no process of the runtime, or of anybody else, wants the processor.

    In a session of its own, apart from the launcher, which stays as quick as it was; the watch outside makes
    that session's share of the processor the least (``command_watch.py``).
    """
    os.setsid()
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except OSError:  # where the kernel is asked to know no such policy, its time is bounded all the same
        return


def wait(child: int, status_fd: int) -> None:
    """Wait for the command and tell how it ended, reaping what it left behind meanwhile.

    Once asked to end, wait for all others too: they may have something left to do.
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
    _tell(status_fd, "started")
    while True:
        try:
            ended, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return
        if ended == child and os.WIFSIGNALED(status):
            _tell(status_fd, f"signal {os.WTERMSIG(status)}")
        elif ended == child:
            _tell(status_fd, f"exited {os.WEXITSTATUS(status)}")
        if ended == child and not asked:
            return


def _tell(status_fd: int, line: str) -> None:
    os.write(status_fd, f"{line}\n".encode(errors="replace"))


def main(plan: dict[str, Any], status_fd: int) -> NoReturn:
    """Do all of it."""
    os.set_inheritable(status_fd, False)
    try:
        confine(plan)
        child = start(plan)
    except OSError as error:
        _tell(status_fd, f"failed {error}")
    else:
        wait(child, status_fd)
    os._exit(0)
