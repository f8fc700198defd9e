"""Ways out of a command's sandbox, one function each; run inside it with the standard library alone.

``python attempts.py FACTS NAME …`` makes the attempts, each in a process of its own, and prints one JSON
object: name to ``succeeded``, to the name of the errno it failed with, or to ``signal N``. ``FACTS`` is the
JSON object of what is outside (``outside.py``). Nothing is harmed
where an attempt succeeds: what is written is what was there before, or meant to be written.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import shutil
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

SUCCEEDED: Final = "succeeded"
MEETING_A_LIMIT: Final = frozenset({"take_much_memory", "write_a_big_file", "start_many_processes"})
"""Attempts that a bound ends, with the whole command: each needs a command for itself."""
FORKS: Final = 600
"""More than any bound of processes allows at a time, on any kernel."""
BIG_MEMORY_BYTES: Final = 3 * 1024**3
BIG_FILE_BYTES: Final = 100 * 1000**2

Facts = dict[str, Any]
Attempt = Callable[[Facts], object]
ATTEMPTS: dict[str, Attempt] = {}
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_IS_ARM: Final = os.uname().machine == "aarch64"
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_REMOUNT, _BIND = 32, 4096
_TYPE_INTO_TERMINAL, _CONTROLLING_TERMINAL = 0x5412, 0x540E


def attempt(function: Attempt) -> Attempt:
    """Enter a function into the table under its own name, without the underscore."""
    ATTEMPTS[function.__name__.removeprefix("_")] = function
    return function


def _call(name: str, *arguments: int | bytes | None) -> int:
    words = [ctypes.c_long(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in arguments]
    answer: int = getattr(_LIBC, name)(*words)
    if answer < 0:
        raise OSError(ctypes.get_errno(), name)
    return answer


def _system_call(on_x86: int, on_arm: int, *arguments: int | bytes | None) -> int:
    return _call("syscall", on_arm if _IS_ARM else on_x86, *arguments)


def _write_again(path: str) -> None:
    """Write what a file holds."""
    held = Path(path).read_bytes()
    descriptor = os.open(path, os.O_WRONLY)
    os.write(descriptor, held)


# Files outside


@attempt
def _write_etc(facts: Facts) -> None:
    Path("/etc", facts["name"]).write_text("written")


@attempt
def _write_usr(facts: Facts) -> None:
    Path("/usr", facts["name"]).write_text("written")


@attempt
def _write_beside_the_workspace(facts: Facts) -> None:
    Path(facts["victim"]).write_text("written")


@attempt
def _write_the_interpreter(facts: Facts) -> None:
    Path(sys.base_prefix, facts["name"]).write_text("written")


# What decides which code runs outside


@attempt
def _plant_a_hook(facts: Facts) -> None:
    Path(facts["git"], "hooks", "pre-commit").write_text("planted")


@attempt
def _swap_the_hooks(facts: Facts) -> None:
    hooks = Path(facts["git"], "hooks")
    hooks.rename(hooks.with_name("aside"))


@attempt
def _change_git_settings(facts: Facts) -> None:
    Path(facts["git"], "config").write_text("[core]\n\tfsmonitor = ./planted\n")


@attempt
def _replace_git_settings(facts: Facts) -> None:
    written = Path(facts["git"], "written")
    written.write_text("[core]\n\tfsmonitor = ./planted\n")
    written.rename(written.with_name("config"))


@attempt
def _name_git_settings_anew(facts: Facts) -> None:
    other = Path(facts["workspace"], "other-name")
    other.hardlink_to(Path(facts["git"], "config"))
    other.write_text("[core]\n\tfsmonitor = ./planted\n")


@attempt
def _swap_the_repository(facts: Facts) -> None:
    git = Path(facts["git"])
    git.rename(git.with_name("aside"))


@attempt
def _open_git_settings_by_descriptor(facts: Facts) -> None:
    descriptor = os.open(Path(facts["git"], "config"), os.O_RDONLY)
    os.close(os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY))


@attempt
def _read_shadow(facts: Facts) -> None:
    del facts
    Path("/etc/shadow").read_bytes()


@attempt
def _read_token(facts: Facts) -> None:
    Path(facts["token"]).read_bytes()


@attempt
def _read_hidden_file(facts: Facts) -> None:
    Path(facts["secret"]).read_bytes()


@attempt
def _list_hidden_directory(facts: Facts) -> None:
    if not list(Path(facts["secret"]).parent.iterdir()):
        raise FileNotFoundError(errno.ENOENT, "nothing is there")


@attempt
def _uncover_hidden_directory(facts: Facts) -> None:
    """Rename what it is in: whoever looks there next finds it under the new name."""
    way = Path(facts["secret"]).parent.parent
    way.rename(way.with_name("renamed"))


@attempt
def _write_through_a_link(facts: Facts) -> None:
    link = Path(facts["workspace"], "link")
    link.symlink_to(facts["victim"])
    link.write_text("written")


@attempt
def _link_a_file_in(facts: Facts) -> None:
    Path(facts["workspace"], "hard").hardlink_to(facts["victim"])


@attempt
def _write_through_the_first_process(facts: Facts) -> None:
    Path(f"/proc/1/root{facts['victim']}").write_text("written")


# Other processes


@attempt
def _read_environment_of_a_process_outside(facts: Facts) -> None:
    _find_in_proc("environ", facts["mark"])


@attempt
def _see_processes_outside(facts: Facts) -> None:
    _find_in_proc("cmdline", facts["mark"])


def _find_in_proc(name: str, mark: str) -> None:
    own = {str(os.getpid()), str(os.getppid())}  # the facts, and the mark among them, are in their words
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.name not in own and mark.encode() in (folder / name).read_bytes():
                return
        except OSError:
            continue
    raise ProcessLookupError(errno.ESRCH, "nobody has it")


@attempt
def _signal_a_process_outside(facts: Facts) -> None:
    os.kill(facts["pid"], 0)
    if facts["mark"] not in Path(f"/proc/{facts['pid']}/cmdline").read_text():
        raise ProcessLookupError(errno.ESRCH, "it is another one")


@attempt
def _trace_the_first_process(facts: Facts) -> None:
    del facts
    _call("ptrace", 0x4206, 1, 0, 0)  # PTRACE_SEIZE: changes nothing by itself


def _first_that_opens(paths: list[str]) -> None:
    """Open one of these for writing, and write nothing."""
    refusals = []
    for path in paths:
        try:
            os.write(os.open(path, os.O_WRONLY), b"")
        except OSError as refusal:
            refusals.append(refusal)
        else:
            return
    raise refusals[-1]


@attempt
def _open_a_descriptor_of_the_launcher(facts: Facts) -> None:
    del facts
    _first_that_opens([f"/proc/1/fd/{number}" for number in range(3, 64)])


@attempt
def _open_a_descriptor_of_the_launchers_thread(facts: Facts) -> None:
    del facts
    _first_that_opens([f"/proc/1/task/1/fd/{number}" for number in range(3, 64)])


@attempt
def _open_the_launchers_memory(facts: Facts) -> None:
    del facts
    os.close(os.open("/proc/1/mem", os.O_RDWR))


@attempt
def _read_what_the_launcher_was_started_with(facts: Facts) -> None:
    del facts
    Path("/proc/1/environ").read_bytes()


@attempt
def _look_from_the_launchers_root(facts: Facts) -> None:
    del facts
    list(Path("/proc/1/root").iterdir())


# The network and sockets


@attempt
def _connect_to_loopback(facts: Facts) -> None:
    socket.create_connection(("127.0.0.1", facts["tcp_port"]), 2)


@attempt
def _connect_outside(facts: Facts) -> None:
    del facts
    sock = socket.socket()
    sock.setblocking(False)
    code = sock.connect_ex(("203.0.113.1", 80))  # an address for documentation: nobody answers
    if code != errno.EINPROGRESS:
        raise OSError(code, "connect")


@attempt
def _send_a_datagram(facts: Facts) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"out", ("127.0.0.1", facts["udp_port"]))


@attempt
def _connect_to_a_socket_file(facts: Facts) -> None:
    socket.socket(socket.AF_UNIX).connect(facts["socket"])


@attempt
def _connect_to_a_socket_file_in_the_workspace(facts: Facts) -> None:
    socket.socket(socket.AF_UNIX).connect(facts["near_socket"])


@attempt
def _connect_to_an_abstract_socket(facts: Facts) -> None:
    socket.socket(socket.AF_UNIX).connect("\0" + facts["name"])


def _end_of(kind: socket.SocketKind) -> socket.socket:
    """Return one end of a pair; the other one stays open as long."""
    pair = socket.socketpair(socket.AF_UNIX, kind)
    _KEPT.append(pair[1])
    return pair[0]


_KEPT: list[socket.socket] = []


@attempt
def _send_a_datagram_to_a_socket_file(facts: Facts) -> None:
    _end_of(socket.SOCK_DGRAM).sendto(b"out", facts["near_datagrams"])


@attempt
def _send_a_descriptor_to_a_socket_file(facts: Facts) -> None:
    end = _end_of(socket.SOCK_DGRAM)
    end.connect(facts["near_datagrams"])
    socket.send_fds(end, [b"out"], [os.open("/etc/passwd", os.O_RDONLY)])


@attempt
def _give_a_datagram_end_a_name(facts: Facts) -> None:
    end = _end_of(socket.SOCK_DGRAM)
    end.bind(str(Path(facts["workspace"], "mine")))


@attempt
def _send_a_raw_datagram_by_a_message(facts: Facts) -> None:
    _end_of(socket.SOCK_RAW).sendmsg([b"out"], [], 0, facts["near_datagrams"])  # raw is a datagram for these


@attempt
def _send_from_a_packet_end(facts: Facts) -> None:
    _end_of(socket.SOCK_SEQPACKET).sendto(b"out", facts["near_datagrams"])


@attempt
def _send_from_a_stream_end(facts: Facts) -> None:
    _end_of(socket.SOCK_STREAM).sendto(b"out", facts["near_datagrams"])


@attempt
def _send_a_message_from_a_stream_end(facts: Facts) -> None:
    _end_of(socket.SOCK_STREAM).sendmsg([b"out"], [], 0, facts["near_datagrams"])


@attempt
def _send_a_message_after_the_other_end_is_gone(facts: Facts) -> None:
    end = _end_of(socket.SOCK_STREAM)
    end.shutdown(socket.SHUT_RDWR)
    _KEPT.pop().close()
    end.sendmsg([b"out"], [], 0, facts["near_datagrams"])


@attempt
def _give_a_stream_end_a_name(facts: Facts) -> None:
    _end_of(socket.SOCK_STREAM).bind(str(Path(facts["workspace"], "mine")))


@attempt
def _connect_a_stream_end_again(facts: Facts) -> None:
    _end_of(socket.SOCK_STREAM).connect(facts["near_socket"])


@attempt
def _listen_at_a_stream_end(facts: Facts) -> None:
    del facts
    _end_of(socket.SOCK_STREAM).listen()


@attempt
def _pair_of_another_family(facts: Facts) -> None:
    del facts
    cluster = 30  # TIPC, the other family that makes pairs
    found = _LIBC.socketpair(cluster, socket.SOCK_STREAM, 0, ctypes.byref((ctypes.c_int * 2)()))
    if found < 0:
        raise OSError(ctypes.get_errno(), "socketpair")


# The kernel


@attempt
def _mount(facts: Facts) -> None:
    _call("mount", b"tmpfs", os.fsencode(facts["workspace"]), b"tmpfs", 0, None)


@attempt
def _remount(facts: Facts) -> None:
    del facts
    _call("mount", None, b"/usr", None, _REMOUNT | _BIND, None)


@attempt
def _remount_in_a_user_namespace(facts: Facts) -> None:
    del facts
    _call("unshare", _NEW_USER | _NEW_MOUNTS)
    _call("mount", None, b"/usr", None, _REMOUNT | _BIND, None)


@attempt
def _start_in_a_user_namespace(facts: Facts) -> None:
    del facts
    if _system_call(56, 220, _NEW_USER | signal.SIGCHLD, None, None, None, 0) == 0:
        os._exit(0)


@attempt
def _change_root(facts: Facts) -> None:
    os.chroot(facts["workspace"])


@attempt
def _make_a_device(facts: Facts) -> None:
    os.mknod(Path(facts["workspace"], "disk"), 0o060600, os.makedev(8, 0))


@attempt
def _make_a_program_of_its_owner(facts: Facts) -> None:
    """Outside, it would run as whoever owns it."""
    program = Path(facts["workspace"], "program")
    shutil.copy("/bin/sh", program)
    program.chmod(0o4755)


@attempt
def _open_a_program_of_its_group(facts: Facts) -> None:
    os.open(Path(facts["workspace"], "group"), os.O_CREAT | os.O_WRONLY, 0o2755)


@attempt
def _type_into_a_terminal(facts: Facts) -> None:
    del facts
    os.setsid()
    terminal = os.openpty()[1]
    fcntl.ioctl(terminal, _CONTROLLING_TERMINAL, 0)
    fcntl.ioctl(terminal, _TYPE_INTO_TERMINAL, b"x")


@attempt
def _write_a_setting(facts: Facts) -> None:
    del facts
    _write_again("/proc/sys/kernel/core_uses_pid")


@attempt
def _write_what_runs_on_a_crash(facts: Facts) -> None:
    del facts
    _write_again("/proc/sys/kernel/core_pattern")


@attempt
def _raise_the_bound_of_processes(facts: Facts) -> None:
    del facts
    _write_again("/proc/sys/kernel/pid_max")


@attempt
def _take_the_processors_back(facts: Facts) -> None:
    """Run as everybody else does, whoever waits."""
    if os.sched_getscheduler(0) == os.SCHED_IDLE:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@attempt
def _outrank_everybody(facts: Facts) -> None:
    """Run before whoever waits."""
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


@attempt
def _enlarge_the_share(facts: Facts) -> None:
    """Let this session have as much of the processors as others."""
    if Path("/proc/self/autogroup").exists():
        Path("/proc/self/autogroup").write_text("0", encoding="ascii")
    else:
        raise PermissionError(errno.EPERM, "this kernel knows no shares of sessions")


@attempt
def _read_messages_of_the_kernel(facts: Facts) -> None:
    del facts
    _call("klogctl", 3, bytes(64), 64)


@attempt
def _load_a_program_into_the_kernel(facts: Facts) -> None:
    del facts
    _system_call(321, 280, 0, struct.pack("IIII", 2, 4, 4, 1) + bytes(112), 128)  # BPF_MAP_CREATE of an array


@attempt
def _set_up_a_ring(facts: Facts) -> None:
    del facts
    _system_call(425, 425, 1, bytes(120))


# Bounds


@attempt
def _take_much_memory(facts: Facts) -> None:
    del facts
    with mmap.mmap(-1, BIG_MEMORY_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        for place in range(0, BIG_MEMORY_BYTES, mmap.PAGESIZE):
            memory[place] = 1


@attempt
def _write_a_big_file(facts: Facts) -> None:
    with Path(facts["workspace"], "big").open("wb") as file:
        file.writelines(bytes(1000**2) for _ in range(BIG_FILE_BYTES // 1000**2))


@attempt
def _start_many_processes(facts: Facts) -> None:
    del facts
    started: list[int] = []
    try:
        for _ in range(FORKS):
            child = os.fork()
            if not child:
                signal.pause()
            started.append(child)
    finally:
        for child in started:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def outcome(name: str, facts: Facts) -> str:
    """Make one attempt; returns what came of it."""
    try:
        ATTEMPTS[name](facts)
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "EUNKNOWN")
    return SUCCEEDED


def outcome_apart(name: str, facts: Facts) -> str:
    """Make one attempt in a process of its own, whose changes to itself end with it."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, outcome(name, facts).encode("ascii"))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="ascii") as stream:
        told = stream.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return told if code == 0 else f"signal {-code}"


if __name__ == "__main__":
    found = {name: outcome_apart(name, json.loads(sys.argv[1])) for name in sys.argv[2:]}
    sys.stdout.write(json.dumps(found))
