"""What a directory is on: a disk of this machine, or a file system that other machines use, too.

SQLite's write-ahead log shares memory between the programs of one machine, so a journal can't be on a network
file system. Source: "All processes using a database must be on the same host computer", sqlite.org/wal.html.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

LOCAL: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "f2fs", "bcachefs", "ramfs", "vfat"}
)
"""File systems that belong to one machine."""
_OF_FUSE: Final = (
    "glusterfs",
    "sshfs",
    "ceph",
    "juicefs",
    "s3fs",
    "gcsfuse",
    "blobfuse2",
    "mount-s3",
    "rclone",
)
NETWORK: Final = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "ceph", "beegfs", "afs", "pvfs2"),
        *("panfs", "ocfs2", "gfs2", "wekafs", "glusterfs"),
        *(f"fuse.{name}" for name in _OF_FUSE),
    }
)
"""File systems that several machines use."""
_MAGIC: Final = {
    0x6969: "nfs",
    0x517B: "smbfs",
    0xFF534D42: "cifs",
    0xFE534D42: "smb3",
    0x00C36400: "ceph",
    0x0BD00BD0: "lustre",
    0x47504653: "gpfs",
    0x5346414F: "afs",
    0x19830326: "beegfs",
    0x7461636F: "ocfs2",
    0x01161970: "gfs2",
    0x20030528: "pvfs2",
    0xAAD7AAEA: "panfs",
}
"""What statfs(2) says of file systems that several machines use, whatever mount table this process sees."""
_STATFS_BYTES: Final = 512
"""More than a ``struct statfs`` has."""
_MOUNTS: Final = Path("/proc/self/mounts")


def detect_file_system(path: Path, mounts: str | None = None) -> str:
    """Return the type of the file system that a path is on, or would be on; empty = unknown.

    Args:
        path: An absolute path; a part of it need not exist yet.
        mounts: The mount table; None = this process's.
    """
    there = path.resolve()
    if mounts is None:
        known = _detect_by_magic(next(each for each in (there, *there.parents) if os.path.exists(each)))  # noqa: PTH110
        if known:
            return known
        try:
            mounts = _MOUNTS.read_text("utf-8", "surrogateescape")
        except OSError:
            return ""
    best, kind = "", ""
    for line in mounts.splitlines():
        point, found = line.split()[1:3]
        point = point.replace("\\040", " ")
        # Of two mounts at one place the later covers the earlier, so an equal length replaces it.
        if there.is_relative_to(point) and len(point) >= len(best):
            best, kind = point, found
    return kind


def _detect_by_magic(path: Path) -> str:
    """Return the type of a network file system as the kernel knows it; empty = another one, or unknown."""
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), found) != 0:
        return ""
    magic = int.from_bytes(found.raw[: ctypes.sizeof(ctypes.c_long)], "little")  # f_type is the first member
    return _MAGIC.get(magic & 0xFFFFFFFF, "")


def find_network_fault(path: Path, mounts: str | None = None) -> str:
    """Return why a journal can't be at a path, and what to do; empty = it can.

    Args:
        path: As for :func:`detect_file_system`.
        mounts: As there.
    """
    kind = detect_file_system(path, mounts)
    if kind not in NETWORK:
        return ""
    return (
        f"it is on a network file system ({kind}), and SQLite's write-ahead log works on a disk of one "
        "machine alone; give a directory on a local disk, such as one below /var/tmp (`bench run` takes it "
        "as --state-dir)"
    )
