"""Opening and looking at files beneath the root."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sessiontree.contracts.errors import ConfigError, ExecutionError, PermissionDenied
from sessiontree.contracts.handles.ports import Entry, Reader
from sessiontree.workspace import WorkspaceReader
from sessiontree.workspace.resolver import resolve_by_openat2, resolve_by_walk

if TYPE_CHECKING:
    from tests.unit.workspace.conftest import Grounds


@pytest.fixture(params=[resolve_by_openat2, resolve_by_walk], ids=["openat2", "walk"])
def machine(request: pytest.FixtureRequest) -> WorkspaceReader:
    """A reader whose root is the whole machine."""
    return WorkspaceReader(Path("/"), resolver=request.param)


def content(reader: Reader, path: str) -> bytes:
    """Return a file's bytes."""
    with reader.open(path) as file:
        return file.read()


def test_file_is_read_by_relative_and_absolute_path(grounds: Grounds) -> None:
    """A regular file's bytes come back, whichever way it is named."""
    reader = grounds.reader()
    assert (
        content(reader, "sub/inner") == content(reader, f"{grounds.root}/sub/inner") == b"in the inner file"
    )
    assert content(reader, "sub/../sub/./inner") == b"in the inner file"


def test_links_are_followed_while_the_target_stays_beneath(grounds: Grounds) -> None:
    """Relative, absolute and chained links inside the workspace lead to their target."""
    (grounds.root / "relative").symlink_to("sub/inner")
    (grounds.root / "sub" / "up").symlink_to("../relative")
    (grounds.root / "absolute").symlink_to(grounds.root / "sub" / "up")
    (grounds.root / "folder").symlink_to(grounds.root / "sub")
    for path in ("relative", "sub/up", "absolute", "folder/inner", "folder/../absolute"):
        assert content(grounds.reader(), path) == b"in the inner file"
        assert grounds.reader().stat(path).path == "sub/inner"


def test_stat_tells_type_size_and_time(grounds: Grounds) -> None:
    """An entry holds what the system says of the object; the root is ``.``."""
    status = (grounds.root / "file").stat()
    assert grounds.reader().stat("file") == Entry("file", "file", 11, status.st_mtime_ns)
    assert (grounds.reader().stat(".").path, grounds.reader().stat("sub/..").type) == (".", "directory")
    os.mkfifo(grounds.root / "pipe")
    assert grounds.reader().stat("pipe").type == "other"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("", "the path is empty"),
        ("fi\0le", "the path holds a NUL character"),
        ("\ud800", "the path holds a character that no file name can hold"),
        ("x" * 256, "file name too long"),
        ("x/" * 40_000, "the path is 80000 bytes long; at most 65536 are accepted"),
        ("missing", "no such file or directory"),
        ("missing/file", "no such file or directory"),
        ("file/below", "not a directory"),
        ("file/", "not a directory"),
        ("loop", "too many levels of symbolic links"),
        ("loop/below", "too many levels of symbolic links"),
        ("sub", "it is a directory, not a regular file"),
        (".", "it is a directory, not a regular file"),
    ],
)
def test_unreadable_path_gives_a_typed_error_with_its_reason(
    grounds: Grounds, path: str, reason: str
) -> None:
    """Whatever is wrong, the error is one a model can read: what was tried, on what, and why not."""
    (grounds.root / "loop").symlink_to("loop")
    with pytest.raises(ExecutionError) as caught:
        grounds.reader().open(path)
    text = str(caught.value)
    assert text.startswith("can't read '")
    assert text.endswith(f"': {reason}")
    assert len(text) < 500
    text.encode()


@pytest.mark.covers("REL-L41")
def test_only_regular_files_are_opened(grounds: Grounds) -> None:
    """REL-L41: a FIFO without a writer and a socket are refused at once, through a link as well."""
    os.mkfifo(grounds.root / "pipe")
    (grounds.root / "link").symlink_to("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        at = os.open(grounds.root, os.O_PATH)
        listener.bind(f"/proc/self/fd/{at}/socket")  # socket addresses are short, paths here may be long
        os.close(at)
        for path, kind in (("pipe", "a FIFO"), ("link", "a FIFO"), ("socket", "a socket")):
            with pytest.raises(ExecutionError, match=f"it is {kind}, not a regular file"):
                grounds.reader().open(path)


@pytest.mark.covers("REL-L41")
@pytest.mark.parametrize("path", ["dev/zero", "/dev/null", "dev/tty"])
def test_devices_are_never_opened(machine: WorkspaceReader, path: str) -> None:
    """REL-L41: a device is refused even where the root is the whole machine."""
    with pytest.raises(ExecutionError, match="it is a character device"):
        machine.open(path)


@pytest.mark.covers("REL-L41")
@pytest.mark.parametrize(
    "path",
    [
        "proc/self/environ",
        "/proc/1/environ",
        "proc/version",
        "proc/sys/kernel/hostname",
        "sys/kernel/uevent_seqnum",
        "etc/../proc/self/cmdline",
    ],
)
def test_kernel_file_systems_are_refused(machine: WorkspaceReader, path: str) -> None:
    """REL-L41: files that are the kernel's state, such as a process's environment, are no user's files."""
    with pytest.raises(PermissionDenied, match=r"it is on (procfs|sysfs)"):
        machine.open(path)


def test_kernel_file_systems_are_neither_listed_nor_walked(machine: WorkspaceReader) -> None:
    """REL-L41: their root is seen as a directory and not entered."""
    assert machine.stat("proc").type == "directory"
    for verb in (machine.list, lambda path: list(machine.walk(path))):
        with pytest.raises(PermissionDenied, match="it is on procfs"):
            verb("proc")


def test_walk_passes_over_kernel_file_systems(machine: WorkspaceReader) -> None:
    """REL-L41: a walk of the whole machine does not wander into processes."""
    others = [Path("/", entry.path) for entry in machine.list() if entry.path != "proc"]
    rest = WorkspaceReader(Path("/"), hidden=others)
    assert [entry.path for entry in rest.list()] == ["proc"]
    assert next(rest.walk(), None) is None


def test_link_of_procfs_leads_no_further_than_its_text(machine: WorkspaceReader, tmp_path: Path) -> None:
    """A magic link counts by its text alone: the file a descriptor keeps alive is not reached through it."""
    with (tmp_path / "deleted").open("wb") as file:
        (tmp_path / "deleted").unlink()
        assert Path(f"/proc/self/fd/{file.fileno()}").read_bytes() == b""
        with pytest.raises(ExecutionError, match="no such file"):
            machine.open(f"proc/self/fd/{file.fileno()}")


@pytest.mark.covers("REL-L41")
def test_sparse_file_of_ten_gigabytes_opens_at_once(grounds: Grounds) -> None:
    """REL-L41: size is no obstacle here; the limit is the caller's, who reads what it can use."""
    size = 10 << 30
    with (grounds.root / "sparse").open("wb") as file:
        file.truncate(size)
    with grounds.reader().open("sparse") as file:
        assert file.read(16) == b"\0" * 16
        assert file.seek(0, os.SEEK_END) == size


def test_name_that_is_no_utf8_survives(grounds: Grounds) -> None:
    """Bytes that are no text come back as surrogates that open the same file."""
    (grounds.root / os.fsdecode(b"na\xefve")).write_bytes(b"found")
    found = [entry.path for entry in grounds.reader().list() if entry.size == len(b"found")]
    assert found == ["na\udcefve"]
    assert content(grounds.reader(), found[0]) == b"found"
    with pytest.raises(ExecutionError) as caught:
        grounds.reader().open(found[0] + "\u202e")
    str(caught.value).encode()
    assert "\u202e" not in str(caught.value)


@pytest.mark.parametrize(
    "make", [lambda path: None, lambda path: path.touch(), lambda path: path.symlink_to(path)]
)
def test_root_that_is_no_directory_is_a_configuration_error(tmp_path: Path, make: object) -> None:
    """A missing root, a file and a link to itself are refused before anything is opened."""
    assert callable(make)
    make(tmp_path / "root")
    with pytest.raises(ConfigError, match="as workspace"):
        WorkspaceReader(tmp_path / "root")


def test_descriptors_are_given_back(grounds: Grounds, count_descriptors: Callable[[], int]) -> None:
    """Neither success nor failure leaves a descriptor open once file and reader are gone."""
    before = count_descriptors()
    reader = grounds.reader()
    content(reader, "file")
    list(reader.walk())
    next(iter(reader.walk()))
    for path in ("sub", "missing", "../outside", "file/x"):
        with pytest.raises((ExecutionError, PermissionDenied)):
            reader.open(path)
    del reader
    assert count_descriptors() == before
