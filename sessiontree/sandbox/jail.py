"""The launcher of a read-only process: it confines itself by Landlock and seccomp, then becomes the command.

It is run by its path and imports only the standard library, so that no import can fail and no thread exists
yet::

    python -I -S jail.py --hide PATH --read PATH --write PATH --list PATH --no-sockets \
        --secret NAME=PATH -- command …

- ``--hide``: a file or directory that can't be read, even if it is made later.
- ``--read``: a directory below a hidden one that can be read nevertheless.
- ``--write``: a directory below which regular files and directories may be made and changed, and files
  removed; or one file that may be written. The null device may always be written.
- ``--list``: a directory whose names may be read although something in it is hidden.
- ``--no-sockets``: no socket can be made, connected or listened on; those that are inherited still work.
- ``--secret``: the text of a file is put into an environment variable before the file becomes hidden,
  unless the variable is set or the file is missing.
- ``--best-effort``: start with what the kernel offers instead of exiting with ``UNCONFINABLE``.

Landlock can only allow, and it allows everything below a directory. So a place is hidden by allowing each of
its siblings on every level down to it. Therefore a new entry of a directory *on the way to* a hidden place is
not readable, and such a directory can't be listed; elsewhere nothing is missing. Each entry of such a
directory makes the start 10 µs longer. Only harmless devices are readable: the device of a disk would show
what is hidden. Inherited descriptors that could write a file elsewhere are closed; the standard ones stay.
Not confined: connections, by TCP and by sockets in the file system; and, before ABI 6 of Landlock (Linux
6.12), signals to other processes of the user and abstract sockets.

Source: landlock(7), seccomp(2), capabilities(7), the kernel's tables of system calls and ioctl numbers.
"""

# Paths are text here: every start of a process pays for what this file imports.
# ruff: noqa: PTH110, PTH115, PTH117, PTH120, PTH123, PTH208

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, NoReturn

LEVEL_VARIABLE: Final = "SESSIONTREE_JAIL"
"""Environment variable that gives the command the level it is confined to."""
UNUSABLE: Final = 118
"""Exit code: the arguments are wrong, a path can't be used, or the command can't be run."""
UNCONFINABLE: Final = 119
"""Exit code: the kernel does not offer what is required."""
FULL_ABI: Final = 3
"""The first Landlock ABI that prevents truncation; Linux 6.2."""
HARMLESS_DEVICES: Final = frozenset({"null", "zero", "full", "random", "urandom", "shm"})

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_FILE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 5
MAKE_DIR, MAKE_REG, TRUNCATE, IOCTL_DEVICE = 1 << 7, 1 << 8, 1 << 14, 1 << 15
READABLE: Final = EXECUTE | READ_FILE | READ_DIR
WRITABLE: Final = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | MAKE_REG | MAKE_DIR | REMOVE_FILE
"""Links can't be made: a process outside that opens a name there must not be led to another place."""
_OF_A_FILE: Final = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
_SIGNALS_AND_ABSTRACT_SOCKETS: Final = 3

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_SET_NO_NEW_PRIVILEGES, _DROP_BOUNDING = 38, 24
_KEPT_CAPABILITIES: Final = frozenset({1, 2})  # DAC_OVERRIDE, DAC_READ_SEARCH: root goes on reading

EPERM, ENOSYS = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
ALLOW, KILL = 0x7FFF0000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN, _SHIFT_RIGHT, _AND = 0x20, 0x15, 0x35, 0x45, 0x06, 0x74, 0x54
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
_X32: Final = 0x40000000
_NAMESPACES: Final = 0x7E020000
_TERMINAL_INJECTIONS: Final = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
FILE_SYSTEM_IOCTLS: Final = (0x58, 0x66, 0x72, 0x76, 0x94, 0xCF, 0xF5)
"""Types of ioctls that change files through a descriptor opened for reading: attributes, snapshots."""

DENIED_CALLS: Final = """
chmod 90 - fchmod 91 52 fchmodat 268 53 fchmodat2 452 452 chown 92 - fchown 93 55 lchown 94 - fchownat 260 54
utime 132 - utimes 235 - futimesat 261 - utimensat 280 88 file_setattr 469 469
setxattr 188 5 lsetxattr 189 6 fsetxattr 190 7 setxattrat 463 463
removexattr 197 14 lremovexattr 198 15 fremovexattr 199 16 removexattrat 466 466 mknod 133 - mknodat 259 33
mount 165 40 umount2 166 39 pivot_root 155 41 chroot 161 51 fsopen 430 430 fsconfig 431 431 fsmount 432 432
fspick 433 433 open_tree 428 428 open_tree_attr 467 467 move_mount 429 429 mount_setattr 442 442
unshare 272 97 setns 308 268 ptrace 101 117 process_vm_readv 310 270 process_vm_writev 311 271
process_madvise 440 440 kcmp 312 272 pidfd_getfd 438 438 open_by_handle_at 304 265
io_uring_setup 425 425 io_uring_enter 426 426 io_uring_register 427 427 bpf 321 280 perf_event_open 298 241
userfaultfd 323 282 add_key 248 217 request_key 249 218 keyctl 250 219 kexec_load 246 104
kexec_file_load 320 294 init_module 175 105 finit_module 313 273 delete_module 176 106 quotactl 179 60
quotactl_fd 443 443 acct 163 89 swapon 167 224 swapoff 168 225 reboot 169 142 clock_settime 227 112
clock_adjtime 305 266 settimeofday 164 170 adjtimex 159 171 sethostname 170 161 setdomainname 171 162
syslog 103 116 vhangup 153 58 iopl 172 - ioperm 173 - process_mrelease 448 448
"""
"""Name, number on x86_64, number on aarch64. io_uring could make the other denied calls."""
OWN_PROCESS_CALLS: Final = """
prlimit64 302 261 sched_setaffinity 203 122 sched_setattr 314 274 sched_setparam 142 118
sched_setscheduler 144 119 migrate_pages 256 238 move_pages 279 239 get_robust_list 274 100
"""
"""As above; the first argument names a process, and must be 0 or this process. Any other process of the same
user could be bounded, and by that be killed."""
SOCKET_CALLS: Final = """
socket 41 198 connect 42 203 bind 49 200 listen 50 201 accept 43 202 accept4 288 242
"""
"""As above; denied where no socket may be made."""
PRIORITY_CALLS: Final = "setpriority 141 140 ioprio_set 251 30"
"""As above; the first argument says what the second one names, which must be this process."""
_NAMES_A_PROCESS: Final = {"setpriority": 0, "ioprio_set": 1}
"""The first argument of a priority call whose second one names one process, not a group or a user."""


class Machine(NamedTuple):
    """What a filter must know about a processor: audit architecture and the numbers of calls."""

    architecture: int
    column: int
    """Which number of ``DENIED_CALLS`` is its own, from 1."""
    seccomp: int
    ioctl: int
    clone: int
    clone3: int = 435


MACHINES: Final = {
    "x86_64": Machine(0xC000003E, 1, 317, 16, 56),
    "aarch64": Machine(0xC00000B7, 2, 277, 29, 220),
}
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


class JailError(Exception):
    """The process could not be confined, or the command not be run; exit code and reason."""


def _call(number: int, *arguments: int | bytes | None) -> int:
    words = [ctypes.c_long(word) if isinstance(word, int) else ctypes.c_char_p(word) for word in arguments]
    return _check_answer(_LIBC.syscall(ctypes.c_long(number), *words))


def _call_prctl(option: int, argument: int) -> None:
    _check_answer(_LIBC.prctl(option, *map(ctypes.c_ulong, (argument, 0, 0, 0))))


def _check_answer(answer: int) -> int:
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer


def query_landlock_abi() -> int:
    """Return the version of Landlock the kernel offers; 0 when it offers none."""
    try:
        return _call(_CREATE_RULESET, None, 0, 1) if sys.platform == "linux" else 0
    except OSError:
        return 0


def detect_machine() -> Machine | None:
    """Return this processor's calls; None if they are unknown or the interpreter is of another processor."""
    return MACHINES.get(os.uname().machine) if struct.calcsize("P") == 8 else None


def has_seccomp() -> bool:
    """Return whether the kernel takes a filter that answers with an error."""
    here = detect_machine()
    try:
        return here is not None and _call(here.seccomp, 2, 0, struct.pack("I", EPERM & 0xFFFF0000)) == 0
    except OSError:
        return False


def format_level(abi: int, seccomp: bool) -> str:
    """Return a level's name: ``none``, ``landlock-N`` or ``landlock-N+seccomp``."""
    return f"landlock-{abi}" + ("+seccomp" if seccomp else "") if abi else "none"


def compute_handled_rights(abi: int) -> int:
    """Return the file rights an ABI knows."""
    return (1 << (13 if abi < 2 else 14 if abi < 3 else 15 if abi < 5 else 16)) - 1


def list_readable_entries(hidden: Sequence[str]) -> Iterator[str]:
    """Yield the paths that together hold everything that is not hidden, without links.

    If this process can't list a directory on the way to a hidden place, only the rest of the way is searched.

    Args:
        hidden: Absolute paths without links.
    """
    places = set(hidden)
    ways = {place[:end] for place in hidden for end, sign in enumerate(place) if sign == "/"}
    # /dev is always on the way: it is listed entry by entry, so that no device of a disk is allowed with it.
    on_the_way = (ways | {"/", "/dev"}) - places - {""}
    beneath = [] if "/" in places else ["/"]
    while beneath:
        folder = beneath.pop()
        try:
            entries = os.scandir(folder)
        except OSError:
            beneath += [place for place in on_the_way if os.path.dirname(place) == folder != place]
            continue
        with entries:
            for entry in entries:
                if entry.path in places or (folder == "/dev" and entry.name not in HARMLESS_DEVICES):
                    continue
                if entry.path in on_the_way and entry.is_dir(follow_symlinks=False):
                    beneath.append(entry.path)
                # A rule for a link would be one for the place where it leads, and that may be hidden.
                elif not entry.is_symlink():
                    yield entry.path


def _allow(ruleset: int, path: str, rights: int) -> None:
    # Between listing and opening, a name can be replaced by a link to a hidden place; it must not be
    # followed.
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISLNK(mode):
            return
        if not stat.S_ISDIR(mode):
            # The kernel refuses a rule that gives a regular file the rights of a directory.
            rights &= _OF_A_FILE
        _call(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


def restrict_files(
    abi: int,
    hidden: Sequence[str],
    writable: Sequence[str] = (),
    listed: Sequence[str] = (),
    readable: Sequence[str] = (),
) -> None:
    """Restrict this thread and all it starts: it reads all but hidden places and writes only writable ones.

    Args:
        abi: The kernel's Landlock ABI, at least 1.
        hidden: Need not exist; see the docstring of the module.
        writable: Existing directories and files.
        listed: Existing directories.
        readable: Directories, hidden or not; a missing one is left out.

    Raises:
        OSError: the kernel refuses, or a writable or listed path can't be used.
    """
    handled = compute_handled_rights(abi)
    attributes = struct.pack("=QQQ", handled, 0, _SIGNALS_AND_ABSTRACT_SOCKETS if abi >= 6 else 0)
    # The structure has grown with the ABI, and a kernel refuses what is beyond its own form unless that is
    # zero.
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    ruleset = _call(_CREATE_RULESET, attributes[:size], size, 0)
    try:
        for path in list_readable_entries([os.path.realpath(path) for path in hidden]):
            try:
                _allow(ruleset, path, READABLE)
            except OSError:  # it is gone since it was listed, or can't be reached anyway
                continue
        for path in readable:
            try:
                _allow(ruleset, os.path.realpath(path), READABLE)
            except FileNotFoundError:  # the program that owned it has ended, and this process will end too
                continue
        for path in listed:
            _allow(ruleset, os.path.realpath(path), READ_DIR)
        for path in ["/dev/null", *writable]:
            _allow(ruleset, os.path.realpath(path), WRITABLE & handled)
        # The kernel copies the rules at this call, so one that was added later would have no effect.
        _call(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def select_call_numbers(here: Machine, calls: str) -> dict[str, int]:
    """Return the calls of a table that a machine has, with their numbers on it."""
    words = calls.split()
    named = zip(words[::3], words[here.column :: 3], strict=True)
    return {name: int(number) for name, number in named if number != "-"}


def filter_program(
    here: Machine, own_pid: int = 0, *, denies_sockets: bool = False
) -> list[tuple[int, int, int, int]]:
    """Return the seccomp filter of a machine, as (code, jump if true, jump if false, operand) in order.

    Args:
        here: The machine.
        own_pid: The process that may be named to calls that act on one; 0 for none. What it starts inherits
            the filter, and so names it too, but none of its siblings.
        denies_sockets: Whether no socket may be made.
    """
    denied = select_call_numbers(here, DENIED_CALLS + (SOCKET_CALLS if denies_sockets else ""))
    # An instruction with a label as third word jumps there when its comparison holds.
    lines: list[tuple[int, int, str]] = [
        # First the architecture: numbers of calls mean something else on another one, and a process may
        # switch to it.
        (_LOAD, _ARCHITECTURE, ""),
        (_EQUAL, here.architecture, "known"),
        (_RETURN, KILL, ""),
        (_LOAD, _NUMBER, "known:"),
        # The x32 calls have the same architecture and other numbers, so every denied call would exist twice.
        (_AT_LEAST, _X32, "missing"),
        (_EQUAL, here.clone3, "missing"),  # its flags are in memory, so callers must use clone
        *((_EQUAL, number, "denied") for number in sorted(denied.values())),
        *((_EQUAL, number, "first") for number in select_call_numbers(here, OWN_PROCESS_CALLS).values()),
        *((_EQUAL, number, name) for name, number in select_call_numbers(here, PRIORITY_CALLS).items()),
        (_EQUAL, here.ioctl, "ioctl"),
        (_EQUAL, here.clone, "clone"),
        (_RETURN, ALLOW, ""),
        *(
            line
            for name, process in _NAMES_A_PROCESS.items()
            for line in (
                (_LOAD, _FIRST_ARGUMENT, f"{name}:"),
                (_EQUAL, process, "second"),
                (_RETURN, EPERM, ""),
            )
        ),
        (_LOAD, _SECOND_ARGUMENT, "second:"),
        (_EQUAL, 0, "own"),
        (_EQUAL, own_pid, "own"),
        (_RETURN, EPERM, ""),
        (_LOAD, _FIRST_ARGUMENT, "first:"),
        (_EQUAL, 0, "own"),
        (_EQUAL, own_pid, "own"),
        (_RETURN, EPERM, ""),
        (_RETURN, ALLOW, "own:"),
        (_LOAD, _SECOND_ARGUMENT, "ioctl:"),
        *((_EQUAL, request, "denied") for request in _TERMINAL_INJECTIONS),
        (_SHIFT_RIGHT, 8, ""),
        (_AND, 0xFF, ""),
        *((_EQUAL, kind, "denied") for kind in FILE_SYSTEM_IOCTLS),
        (_RETURN, ALLOW, ""),
        (_LOAD, _FIRST_ARGUMENT, "clone:"),
        (_ANY_BIT, _NAMESPACES, "denied"),
        (_RETURN, ALLOW, ""),
        (_RETURN, EPERM, "denied:"),
        (_RETURN, ENOSYS, "missing:"),
    ]
    return assemble(lines)


def assemble(lines: Sequence[tuple[int, int, str]]) -> list[tuple[int, int, int, int]]:
    """Return instructions with forward jumps instead of labels; a label with a colon names its own line."""
    at = {label[:-1]: index for index, (_, _, label) in enumerate(lines) if label.endswith(":")}
    return [
        (code, at[label] - index - 1 if label in at else 0, 0, operand)
        for index, (code, operand, label) in enumerate(lines)
    ]


def filter_calls(here: Machine, program: Sequence[tuple[int, int, int, int]]) -> None:
    """Filter every call of this thread and all it starts; raise OSError if the kernel refuses the filter."""
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    _call(here.seccomp, 1, 0, struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))


def close_inherited(writable: Sequence[str]) -> None:
    """Close every descriptor that can write a file or disk outside ``writable``, except the standard ones."""
    folders = tuple(os.path.realpath(path) + "/" for path in writable)
    for name in os.listdir("/proc/self/fd"):
        try:
            mode, link = os.fstat(int(name)).st_mode, os.readlink(f"/proc/self/fd/{name}")
            is_read_only = fcntl.fcntl(int(name), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            is_storage = stat.S_ISREG(mode) or stat.S_ISBLK(mode)
            if int(name) > 2 and is_storage and not is_read_only and not link.startswith(folders):
                os.close(int(name))
        except OSError:  # the descriptor that listed them is closed
            continue


def renounce_privileges() -> None:
    """Drop every privilege of the next program, except those for reaching and reading files."""
    _call_prctl(_SET_NO_NEW_PRIVILEGES, 1)
    for capability in range(64):
        try:
            if capability not in _KEPT_CAPABILITIES:
                _call_prctl(_DROP_BOUNDING, capability)
        except OSError as error:
            if error.errno == errno.EPERM:  # a process that may not drop privileges gets no new ones
                return
            if error.errno != errno.EINVAL:  # beyond the last one that the kernel knows
                raise


class Options(NamedTuple):
    """The arguments."""

    hidden: list[str]
    readable: list[str]
    writable: list[str]
    listed: list[str]
    secrets: list[str]
    is_required: bool
    denies_sockets: bool
    command: list[str]


def parse(words: Sequence[str]) -> Options:
    """Read the arguments.

    Raises:
        JailError: a word is unknown, a value missing or relative, or the command is missing.
    """
    found: dict[str, list[str]] = {"--hide": [], "--read": [], "--write": [], "--list": [], "--secret": []}
    rest, is_required, denies_sockets = list(words), True, False
    while rest and rest[0] != "--":
        word = rest.pop(0)
        if word == "--best-effort":
            is_required = False
        elif word == "--no-sockets":
            denies_sockets = True
        elif word in found and rest:
            found[word].append(rest.pop(0))
        else:
            raise JailError(UNUSABLE, f"can't use the argument {word!r}")
    if len(rest) < 2:
        raise JailError(UNUSABLE, "no command after '--'")
    paths = [*found["--hide"], *found["--read"], *found["--write"], *found["--list"]]
    for path in [*paths, *(secret.partition("=")[2] for secret in found["--secret"])]:
        if not os.path.isabs(path):
            raise JailError(UNUSABLE, f"{path!r} is not an absolute path")
    hidden, readable, writable, listed, secrets = found.values()
    return Options(hidden, readable, writable, listed, secrets, is_required, denies_sockets, rest[1:])


def confine(options: Options) -> str:
    """Confine this process as its options say; return the level in force.

    Raises:
        JailError: the kernel does not offer what is required, or a path can't be used.
    """
    abi, here = query_landlock_abi(), detect_machine() if has_seccomp() else None
    if options.is_required and (abi < FULL_ABI or here is None):
        offered = format_level(abi, here is not None)
        raise JailError(
            UNCONFINABLE,
            f"the kernel offers {offered!r}; it must offer Landlock ABI {FULL_ABI} or later (Linux 6.2), and "
            "seccomp on x86_64 or aarch64. Start it with lsm=landlock,… or ask for best effort",
        )
    if not abi:
        return format_level(0, False)
    try:
        # Landlock judges the opening of a file: what is open already could be written through in spite of it.
        close_inherited(options.writable)
        # Before the other two: the kernel takes rules and filters from a process without privileges only
        # after it has renounced new ones.
        renounce_privileges()
        restrict_files(abi, options.hidden, options.writable, options.listed, options.readable)
        if here is not None:
            program = filter_program(here, os.getpid(), denies_sockets=options.denies_sockets)
            filter_calls(here, program)
    except OSError as error:
        raise JailError(UNUSABLE, f"can't confine the process: {error}") from error
    return format_level(abi, here is not None)


def run(words: Sequence[str]) -> NoReturn:
    """Confine this process and become the command; raise JailError if either fails."""
    options = parse(words)
    for secret in options.secrets:
        name, _, path = secret.partition("=")
        if name not in os.environ and os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                # Read now: the file is hidden as soon as the process is confined.
                os.environ[name] = file.read().strip()
    os.environ[LEVEL_VARIABLE] = confine(options)
    try:
        os.execvp(options.command[0], options.command)  # noqa: S606 - the words are the caller's own
    except OSError as error:
        raise JailError(UNUSABLE, f"can't run {options.command[0]!r}: {error}") from error


if __name__ == "__main__":
    try:
        run(sys.argv[1:])
    except JailError as failure:
        code, reason = failure.args
        sys.stderr.write(f"sessiontree jail: {reason}\n")
        sys.exit(code)
