"""What the standard library cannot ask Linux: ``openat2``, a descriptor's file system, a descriptor's path.

Room: argument layouts and errno, nothing decided here.
Source: openat2(2), fstatfs(2), ``linux/openat2.h``, ``linux/magic.h``.
"""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache
from typing import Final

RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_BENEATH: Final = 0x08
_OPENAT2: Final = 437

# Kernel state dressed as files: reading tells secrets of processes, writing changes the machine.
_PSEUDO_FILE_SYSTEMS: Final = {
    0x00001CD1: "devpts",
    0x00009FA0: "procfs",
    0x0027E0EB: "cgroup",
    0x07655821: "resctrl",
    0x19800202: "mqueue",
    0x42494E4D: "binfmt_misc",
    0x43415D53: "smackfs",
    0x6165676C: "pstore",
    0x62656570: "configfs",
    0x62656572: "sysfs",
    0x63677270: "cgroup2",
    0x64626720: "debugfs",
    0x65735543: "fusectl",
    0x6E736673: "nsfs",
    0x73636673: "securityfs",
    0x74726163: "tracefs",
    0xCAFE4A11: "bpf",
    0xDE5E81E4: "efivarfs",
    0xF97CFF8C: "selinuxfs",
}


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def openat2(directory_fd: int, path: str, flags: int, resolve: int) -> int:
    """Open a path under the kernel's own resolution rules.

    Args:
        directory_fd: Where relative paths start.
        path: The path; undecodable bytes as surrogates.
        flags: ``os.O_*`` bits; ``O_CLOEXEC`` is added.
        resolve: ``RESOLVE_*`` bits.

    Returns:
        A new descriptor; the caller closes it.

    Raises:
        OSError: ``ENOSYS`` or ``EPERM`` where the kernel or a filter has no such call, else the reason.
    """
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, 0, resolve)  # struct open_how: flags, mode, resolve
    fd: int = _libc().syscall(
        ctypes.c_long(_OPENAT2),
        ctypes.c_int(directory_fd),
        ctypes.c_char_p(os.fsencode(path)),
        ctypes.c_char_p(how),
        ctypes.c_size_t(len(how)),
    )
    if fd < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return fd


def path_of(fd: int) -> str:
    """Return the present path of what a descriptor stands for.

    Raises:
        OSError: procfs is missing, or the path is longer than the kernel's limit.
    """
    return os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - the kernel's text, not one made normal


def pseudo_file_system(fd: int) -> str | None:
    """Return the name of the kernel's own file system a descriptor lies on, or None for a real one.

    Raises:
        OSError: the system refused to tell.
    """
    # struct statfs begins with the type as one long on every Linux; the rest is not read.
    answer = (ctypes.c_long * 64)()
    if _libc().fstatfs(ctypes.c_int(fd), ctypes.byref(answer)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return _PSEUDO_FILE_SYSTEMS.get(answer[0] & 0xFFFFFFFF)
