"""Network file systems are refused for journals, by the mount table and by what the kernel says."""

from __future__ import annotations

from pathlib import Path

import pytest

from sessiontree.journal.file_systems import LOCAL, NETWORK, detect_file_system, find_network_fault

MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/srv /srv nfs4 rw 0 0
/dev/nvme0 /srv/scratch\\040disk xfs rw 0 0
tmpfs /tmp tmpfs rw 0 0
mds:/lustre /lustre lustre rw 0 0
host:/x /mnt/ssh fuse.sshfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/srv/me/runs", "nfs4"),
        ("/srv/scratch disk/runs", "xfs"),
        ("/srvs", "ext4"),
        ("/lustre/a/b", "lustre"),
        ("/mnt/ssh", "fuse.sshfs"),
        ("/tmp/run", "tmpfs"),
    ],
)
def test_nearest_mount_counts(path: str, kind: str) -> None:
    """A directory is on the file system that is mounted nearest above it."""
    assert detect_file_system(Path(path), MOUNTS) == kind
    assert bool(find_network_fault(Path(path), MOUNTS)) == (kind in NETWORK)


def test_reason_and_the_way_out_are_said() -> None:
    """Which file system, why not there, and what to give instead."""
    said = find_network_fault(Path("/srv/me/state"), MOUNTS)
    assert "(nfs4)" in said
    assert "write-ahead log" in said
    assert "--state-dir" in said


def test_this_machine_has_disks_of_its_own(tmp_path: Path) -> None:
    """A temporary directory is on one, also where it does not exist yet."""
    assert detect_file_system(tmp_path / "none" / "below") in LOCAL
    assert find_network_fault(tmp_path) == ""
    assert not LOCAL & NETWORK
