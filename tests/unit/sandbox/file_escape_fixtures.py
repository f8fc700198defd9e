"""Ways of changing a file that the jail must close, one function each."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import socket
import stat
import struct
import subprocess
import threading
from pathlib import Path

from tests.unit.sandbox.escape_fixtures import CONTENT, Attempt, Grounds, call, opened, row, system_call

CONTENTS: dict[str, Attempt] = {}
"""Changing what files there are and what they hold; Landlock refuses."""
METADATA: dict[str, Attempt] = {}
"""Changing what is written about a file; seccomp refuses."""


# What files there are, and what they hold


@row(CONTENTS)
def _create(grounds: Grounds) -> None:
    (grounds.here / "new").write_bytes(b"new")


@row(CONTENTS)
def _create_unnamed_and_link(grounds: Grounds) -> None:
    file = opened(grounds.here, os.O_TMPFILE | os.O_WRONLY)
    call("linkat", -100, f"/proc/self/fd/{file}".encode(), -100, bytes(grounds.here / "new"), 0x400)


@row(CONTENTS)
def _overwrite(grounds: Grounds) -> None:
    grounds.victim.write_bytes(b"overwritten")


@row(CONTENTS)
def _append(grounds: Grounds) -> None:
    with grounds.victim.open("ab") as file:
        file.write(b"appended")


@row(CONTENTS)
def _write_by_openat2(grounds: Grounds) -> None:
    how = struct.pack("QQQ", os.O_WRONLY, 0, 0)
    os.write(system_call(437, 437, -100, bytes(grounds.victim), how, len(how)), b"written")


@row(CONTENTS)
def _write_through_own_descriptor(grounds: Grounds) -> None:
    os.write(opened(Path(f"/proc/self/fd/{opened(grounds.victim)}"), os.O_WRONLY), b"written")


@row(CONTENTS)
def _write_through_own_root(grounds: Grounds) -> None:
    Path(f"/proc/self/root{grounds.victim}").write_bytes(b"written")


@row(CONTENTS)
def _write_through_mapping(grounds: Grounds) -> None:
    with mmap.mmap(opened(grounds.victim, os.O_RDWR), len(CONTENT)) as memory:
        memory[0:1] = b"x"


@row(CONTENTS)
def _write_from_a_thread(grounds: Grounds) -> None:
    caught: list[OSError] = []

    def write() -> None:
        try:
            grounds.victim.write_bytes(b"written")
        except OSError as error:
            caught.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    for error in caught:
        raise error


@row(CONTENTS)
def _write_from_a_shell(grounds: Grounds) -> None:
    if subprocess.run(
        ["/bin/sh", "-c", 'echo x >"$0"', str(grounds.victim)], stderr=subprocess.PIPE
    ).returncode:
        raise PermissionError(errno.EACCES, "the shell says so")


@row(CONTENTS)
def _truncate_by_path(grounds: Grounds) -> None:
    os.truncate(grounds.victim, 2)


@row(CONTENTS)
def _truncate_while_opening_for_reading(grounds: Grounds) -> None:
    opened(grounds.victim, os.O_RDONLY | os.O_TRUNC)


@row(CONTENTS)
def _delete(grounds: Grounds) -> None:
    grounds.victim.unlink()


@row(CONTENTS)
def _delete_directory(grounds: Grounds) -> None:
    (grounds.here / "empty").rmdir()


@row(CONTENTS)
def _make_directory(grounds: Grounds) -> None:
    (grounds.here / "new").mkdir()


@row(CONTENTS)
def _make_pipe(grounds: Grounds) -> None:
    os.mkfifo(grounds.here / "new")


@row(CONTENTS)
def _make_node(grounds: Grounds) -> None:
    os.mknod(grounds.here / "new", stat.S_IFREG | 0o644)


@row(CONTENTS)
def _make_symbolic_link(grounds: Grounds) -> None:
    (grounds.here / "new").symlink_to("victim")


@row(CONTENTS)
def _make_symbolic_link_among_the_logs(grounds: Grounds) -> None:
    """Somebody outside would follow it when writing a log."""
    (grounds.logs / "new").symlink_to(grounds.victim)


@row(CONTENTS)
def _bind_a_socket(grounds: Grounds) -> None:
    place = opened(grounds.here, os.O_PATH)  # its own path may be longer than an address
    socket.socket(socket.AF_UNIX).bind(f"/proc/self/fd/{place}/new")


@row(CONTENTS)
def _rename(grounds: Grounds) -> None:
    grounds.victim.rename(grounds.here / "new")


@row(CONTENTS)
def _rename_into_the_logs(grounds: Grounds) -> None:
    grounds.victim.rename(grounds.logs / "taken")


@row(CONTENTS)
def _rename_a_log_over(grounds: Grounds) -> None:
    (grounds.logs / "own").write_bytes(b"mine")
    (grounds.logs / "own").rename(grounds.victim)


@row(CONTENTS)
def _exchange_with_a_log(grounds: Grounds) -> None:
    (grounds.logs / "mine").write_bytes(b"mine")
    call("renameat2", -100, bytes(grounds.logs / "mine"), -100, bytes(grounds.victim), 2)


@row(CONTENTS)
def _link(grounds: Grounds) -> None:
    (grounds.here / "new").hardlink_to(grounds.victim)


@row(CONTENTS)
def _link_into_the_logs_and_write(grounds: Grounds) -> None:
    (grounds.logs / "linked").hardlink_to(grounds.victim)
    (grounds.logs / "linked").write_bytes(b"written")


# What is written about a file


@row(METADATA)
def _chmod(grounds: Grounds) -> None:
    grounds.victim.chmod(0o777)


@row(METADATA)
def _chmod_by_descriptor(grounds: Grounds) -> None:
    os.fchmod(opened(grounds.victim), 0o777)


@row(METADATA)
def _chmod_by_fchmodat(grounds: Grounds) -> None:
    call("fchmodat", -100, bytes(grounds.victim), 0o777, 0)


@row(METADATA)
def _chmod_by_fchmodat2(grounds: Grounds) -> None:
    system_call(452, 452, -100, bytes(grounds.victim), 0o777, 0)


@row(METADATA)
def _chown(grounds: Grounds) -> None:
    os.chown(grounds.victim, os.geteuid(), os.getegid())


@row(METADATA)
def _chown_by_descriptor(grounds: Grounds) -> None:
    os.fchown(opened(grounds.victim), os.geteuid(), os.getegid())


@row(METADATA)
def _chown_without_following(grounds: Grounds) -> None:
    os.lchown(grounds.victim, os.geteuid(), os.getegid())


@row(METADATA)
def _touch_to_a_time(grounds: Grounds) -> None:
    os.utime(grounds.victim, (1, 1))


@row(METADATA)
def _touch_to_now(grounds: Grounds) -> None:
    os.utime(grounds.victim)


@row(METADATA)
def _touch_by_descriptor(grounds: Grounds) -> None:
    os.utime(opened(grounds.victim), (1, 1))


@row(METADATA)
def _touch_by_utimes(grounds: Grounds) -> None:
    call("utimes", bytes(grounds.victim), struct.pack("qqqq", 1, 0, 1, 0))


@row(METADATA)
def _set_attribute(grounds: Grounds) -> None:
    os.setxattr(grounds.victim, "user.jail", b"1")


@row(METADATA)
def _set_attribute_by_descriptor(grounds: Grounds) -> None:
    os.setxattr(opened(grounds.victim), "user.jail", b"1")


@row(METADATA)
def _remove_attribute(grounds: Grounds) -> None:
    os.removexattr(grounds.victim, "user.mark")


@row(METADATA)
def _set_flags_by_ioctl(grounds: Grounds) -> None:
    """Ask that the file be left out of dumps: FS_IOC_SETFLAGS with FS_NODUMP_FL."""
    fcntl.ioctl(opened(grounds.victim), 0x40086602, struct.pack("l", 0x40))


@row(METADATA)
def _set_flags_by_file_setattr(grounds: Grounds) -> None:
    size = 24
    system_call(469, 469, -100, bytes(grounds.victim), struct.pack("QIIII", 0x80, 0, 0, 0, 0), size, 0)
