"""Replacing a file in one step, under races, limits and missing rights."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sessiontree.contracts.errors import ExecutionError
from sessiontree.workspace.root import TEMPORARY_PREFIX
from sessiontree.workspace.writer import FileReplacement

if TYPE_CHECKING:
    from tests.unit.workspace.conftest import Grounds


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o1666])
def test_permission_bits_of_a_replaced_file_are_kept(grounds: Grounds, mode: int) -> None:
    """A script stays executable and a private file private."""
    (grounds.root / "file").chmod(mode)
    grounds.writer().write("file", b"new")
    assert stat.S_IMODE((grounds.root / "file").stat().st_mode) == mode


def test_new_file_gets_the_usual_mode(grounds: Grounds) -> None:
    """A new file's mode is what any program's would be under the process's mask."""
    grounds.writer().write("ours", b"")
    (grounds.root / "theirs").write_bytes(b"")
    assert (grounds.root / "ours").stat().st_mode == (grounds.root / "theirs").stat().st_mode


def test_set_user_id_bits_are_dropped(grounds: Grounds) -> None:
    """Rights given to the old content do not pass to the new."""
    (grounds.root / "file").chmod(0o6755)
    grounds.writer().write("file", b"new")
    assert stat.S_IMODE((grounds.root / "file").stat().st_mode) == 0o755


def test_replacement_written_within_one_tick_gets_another_time(tmp_path: Path) -> None:
    """Where the clock gives the new content the old one's time, the time is moved on."""
    (tmp_path / "file").write_bytes(b"old")
    standing = (tmp_path / "file").stat()
    directory_fd = os.open(tmp_path, os.O_PATH)
    try:
        with FileReplacement(directory_fd, standing) as replacement:
            (fresh,) = tmp_path.glob(f"{TEMPORARY_PREFIX}*")
            os.utime(fresh, ns=(standing.st_atime_ns, standing.st_mtime_ns))
            replacement.fill(b"")
            replacement.commit("file")
    finally:
        os.close(directory_fd)
    assert (tmp_path / "file").read_bytes() == b""
    assert (tmp_path / "file").stat().st_mtime_ns > standing.st_mtime_ns


def test_every_write_is_a_new_version(grounds: Grounds) -> None:
    """However fast writes follow each other, no two versions share a modification time."""
    seen = []
    for number in range(30):
        grounds.writer().write("file", str(number).encode())
        seen.append(grounds.reader().stat("file").mtime_ns)
    assert all(one != other for one, other in pairwise(seen))


def test_one_of_two_writes_of_the_same_version_wins(grounds: Grounds) -> None:
    """Parallel writes that expect the same version: one is done, the others are refused."""
    writer = grounds.writer()
    for _ in range(10):
        seen = grounds.reader().stat("file").mtime_ns
        outcomes: list[str] = []
        start = threading.Barrier(4)

        def write(
            text: str, seen: int = seen, outcomes: list[str] = outcomes, start: threading.Barrier = start
        ) -> None:
            start.wait()
            try:
                writer.write("file", text.encode(), expect_mtime_ns=seen)
                outcomes.append(text)
            except ExecutionError:
                outcomes.append("refused")

        threads = [threading.Thread(target=write, args=(f"writer {number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes)[:3] == ["refused"] * 3
        assert [(grounds.root / "file").read_text()] == [text for text in outcomes if text != "refused"]


def halves_seen(root: Path, read: Callable[[], bytes], write: Callable[[bytes], object]) -> int:
    """Count what a reader sees alongside whole contents while a file is rewritten again and again."""
    contents = [letter * 300_000 for letter in (b"a", b"b")]
    (root / "file").write_bytes(contents[0])
    halves = 0
    stop = threading.Event()

    def look() -> None:
        nonlocal halves
        while not stop.is_set():
            halves += read() not in contents

    looker = threading.Thread(target=look)
    looker.start()
    try:
        for number in range(150):
            write(contents[number % 2])
    finally:
        stop.set()
        looker.join()
    return halves


@pytest.mark.slow
def test_reader_never_sees_half_a_write(grounds: Grounds) -> None:
    """Whoever opens the file while it is written gets the old content or the new, whole."""
    reader, writer = grounds.reader(), grounds.writer()

    def read() -> bytes:
        with reader.open("file") as file:
            return file.read()

    assert halves_seen(grounds.root, read, lambda content: writer.write("file", content)) == 0


def test_writing_in_place_is_seen_half_done(grounds: Grounds) -> None:
    """The test before can fail: a write in place is caught."""
    path = grounds.root / "file"

    def write_in_place(content: bytes) -> None:
        with path.open("wb", buffering=0) as file:
            for start in range(0, len(content), 4096):
                file.write(content[start : start + 4096])

    assert halves_seen(grounds.root, path.read_bytes, write_in_place) > 0


def in_child(script: str, *arguments: str) -> None:
    """Run a test's lines in a process of their own, whose limits and user they may change."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert (done.returncode, done.stderr) == (0, "")


LIMITED = """
import resource, sys
from pathlib import Path
from sessiontree.contracts.errors import ExecutionError
from sessiontree.workspace import WorkspaceWriter
writer = WorkspaceWriter(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
for path in ("file", "sub/new", "made/new"):
    try:
        writer.write(path, b"x" * 1_000_000)
    except ExecutionError as error:
        assert str(error) == f"can't write {path!r}: file too large", error
    else:
        raise AssertionError("the limit was not reached")
"""


def test_file_size_limit_leaves_the_old_content(grounds: Grounds) -> None:
    """A write the system breaks off is a typed error; old content stays, no trace of the new remains."""
    in_child(LIMITED, str(grounds.root))
    assert (grounds.root / "file").read_bytes() == b"in the file"
    assert grounds.names() == ["file", "sub"]
    assert grounds.names("sub") == ["deep", "inner"]


UNPRIVILEGED = """
import os, sys
from pathlib import Path
from sessiontree.contracts.errors import ExecutionError
from sessiontree.workspace import WorkspaceReader, WorkspaceWriter
from sessiontree.workspace.resolver import resolve_by_openat2
from sessiontree.workspace.resolver import resolve_by_walk
root = Path(sys.argv[1])
pairs = [
    (WorkspaceReader(root, resolver=resolver), WorkspaceWriter(root, resolver=resolver))
    for resolver in (resolve_by_openat2, resolve_by_walk)
]
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)

def refused(text, call):
    try:
        call()
    except ExecutionError as error:
        assert str(error) == f"{text}: permission denied", error
    else:
        raise AssertionError(text)

for reader, writer in pairs:
    refused("can't write 'locked/file'", lambda: writer.write("locked/file", b"new"))
    refused("can't write 'locked/new'", lambda: writer.write("locked/new", b"new"))
    refused("can't write 'locked/a/b'", lambda: writer.write("locked/a/b", b"new"))
    refused("can't remove 'locked/file'", lambda: writer.remove("locked/file"))
    refused("can't write 'open/protected'", lambda: writer.write("open/protected", b"new"))
    refused("can't read 'open/private'", lambda: reader.open("open/private"))
    refused("can't read 'closed/file'", lambda: reader.open("closed/file"))
    refused("can't list 'closed'", lambda: reader.list("closed"))
    refused("can't list 'unsearchable'", lambda: reader.list("unsearchable"))
    refused("can't walk 'closed'", lambda: list(reader.walk("closed")))
    found = [entry.path for entry in reader.walk()]
    assert found == ["locked/file", "open/private", "open/protected"], found
    assert writer.write("open/new", b"new").created
    writer.remove("open/new")
"""


def test_unprivileged_process_is_refused_by_the_system(grounds: Grounds) -> None:
    """Unwritable and unreadable places give typed errors to list, read and write; a walk passes them over."""
    root = grounds.root.with_name("shared")
    for name in ("locked", "open", "closed", "unsearchable/below"):
        (root / name).mkdir(parents=True)
    for name in ("locked/file", "open/protected", "open/private", "closed/file", "unsearchable/file"):
        (root / name).write_bytes(b"old")
        (root / name).chmod(0o666)
    (root / "open" / "protected").chmod(0o444)
    (root / "open" / "private").chmod(0)
    for name, mode in (("locked", 0o555), ("open", 0o777), ("closed", 0), ("unsearchable", 0o444)):
        (root / name).chmod(mode)
    try:
        in_child(UNPRIVILEGED, str(root))
        (root / "closed").chmod(0o755)
        assert (root / "locked" / "file").read_bytes() == (root / "open" / "protected").read_bytes() == b"old"
        assert list(root.rglob(f"{TEMPORARY_PREFIX}*")) == []
    finally:
        for folder in root.iterdir():
            folder.chmod(0o755)
