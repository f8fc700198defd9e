"""Writing and removing files beneath the root."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied
from sessiontree.contracts.handles.ports import Writer, Written
from sessiontree.contracts.kinds import PermissionTier
from sessiontree.workspace import WorkspaceWriter
from sessiontree.workspace.root import TEMPORARY_PREFIX
from sessiontree.workspace.writer import FileReplacement

if TYPE_CHECKING:
    from tests.unit.workspace.conftest import Grounds


def unfinished(root: Path) -> list[Path]:
    """Return temporary files that were left behind."""
    return list(root.rglob(f"{TEMPORARY_PREFIX}*"))


def test_write_makes_and_replaces(grounds: Grounds) -> None:
    """The result tells path, bytes, and whether the file is new; the content is exact."""
    writer: Writer = grounds.writer()
    content = bytes(range(256)) * 5000
    assert writer.write("sub/new", content) == Written("sub/new", len(content), created=True)
    assert writer.write(f"{grounds.root}/sub/new", b"") == Written("sub/new", 0, created=False)
    assert (grounds.root / "sub" / "new").read_bytes() == b""
    assert unfinished(grounds.root) == []


def test_missing_parents_are_made(grounds: Grounds) -> None:
    """Directories on the way come into being, below existing ones and links alike."""
    (grounds.root / "folder").symlink_to("sub/deep")
    assert grounds.writer().write("folder/a/b/./c", b"x").path == "sub/deep/a/b/c"
    assert (grounds.root / "sub/deep/a/b/c").read_bytes() == b"x"


def test_parents_made_for_a_failed_write_are_taken_away(grounds: Grounds) -> None:
    """A write that fails leaves no empty directories behind."""
    with pytest.raises(ExecutionError, match="file name too long"):
        grounds.writer().write(f"a/b/{'x' * 256}", b"")
    assert not (grounds.root / "a").exists()


def test_link_beneath_the_root_is_written_through(grounds: Grounds) -> None:
    """A link stays a link; its target is replaced in the target's own directory, or made."""
    (grounds.root / "link").symlink_to("sub/inner")
    (grounds.root / "dangling").symlink_to(grounds.root / "sub" / "born")
    assert grounds.writer().write("link", b"new") == Written("sub/inner", 3, created=False)
    assert grounds.writer().write("dangling", b"new") == Written("sub/born", 3, created=True)
    assert (grounds.root / "link").is_symlink()
    assert (grounds.root / "dangling").is_symlink()
    assert (
        (grounds.root / "sub" / "inner").read_bytes()
        == (grounds.root / "sub" / "born").read_bytes()
        == b"new"
    )


@pytest.mark.covers("REL-L36")
def test_file_with_a_second_name_is_refused(grounds: Grounds) -> None:
    """REL-L36: a hard link may be an outside file's alias; writing it is refused and says why."""
    os.link(grounds.outside / "secret", grounds.root / "alias")
    (grounds.root / "link").symlink_to("alias")
    for path in ("alias", "link"):
        with pytest.raises(PermissionDenied, match="2 names") as caught:
            grounds.writer().write(path, b"forged")
        assert caught.value.tier is PermissionTier.WORKSPACE
    assert (grounds.outside / "secret").read_bytes() == b"outside"
    assert (grounds.root / "alias").samefile(grounds.outside / "secret")


def test_write_after_a_change_is_refused(grounds: Grounds) -> None:
    """A writer that says which version it read does not overwrite another's."""
    writer, reader = grounds.writer(), grounds.reader()
    seen = reader.stat("file").mtime_ns
    writer.write("file", b"mine", expect_mtime_ns=seen)
    with pytest.raises(ExecutionError, match="can't write 'file': it changed since it was read"):
        writer.write("file", b"late", expect_mtime_ns=seen)
    (grounds.root / "file").unlink()
    with pytest.raises(ExecutionError, match="was removed since it was read"):
        writer.write("file", b"late", expect_mtime_ns=seen)
    assert not (grounds.root / "file").exists()
    assert unfinished(grounds.root) == []


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("sub", "it is a directory, not a regular file"),
        (".", "is a directory"),
        ("sub/", "is a directory"),
        ("new/", "no such file or directory"),
        ("file/below", "not a directory"),
        ("pipe", "it is a FIFO, not a regular file"),
        ("missing/../new", "no such file or directory"),
        ("", "the path is empty"),
        ("a\0b", "the path holds a NUL character"),
    ],
)
def test_path_that_cannot_be_a_file_fails(grounds: Grounds, path: str, reason: str) -> None:
    """Directories, pipes and impossible paths are not written; the error says what they are."""
    os.mkfifo(grounds.root / "pipe")
    with pytest.raises(ExecutionError) as caught:
        grounds.writer().write(path, b"x")
    assert str(caught.value).endswith(f": {reason}")
    assert grounds.names() == ["file", "pipe", "sub"]
    assert unfinished(grounds.root) == []


def test_kernel_file_systems_are_not_written(grounds: Grounds) -> None:
    """REL-L41: with the whole machine as root, the kernel's state is still no file of the user's."""
    machine = WorkspaceWriter(Path("/"), resolver=grounds.resolver)
    before = Path("/proc/self/comm").read_bytes()
    with pytest.raises(PermissionDenied, match="it is on procfs"):
        machine.write("proc/self/comm", b"forged")
    with pytest.raises(PermissionDenied, match="it is on procfs"):
        machine.remove("proc/self/comm")
    assert Path("/proc/self/comm").read_bytes() == before


def test_remove_takes_a_file_or_the_link_itself(grounds: Grounds) -> None:
    """A link goes and its target stays, even one that leads outside; a second name goes alone."""
    (grounds.root / "link").symlink_to("file")
    (grounds.root / "out").symlink_to(grounds.outside / "secret")
    os.link(grounds.outside / "secret", grounds.root / "alias")
    for path in ("link", "out", "alias", "sub/inner"):
        grounds.writer().remove(path)
    assert grounds.names() == ["file", "sub"]
    assert (grounds.outside / "secret").read_bytes() == b"outside"
    assert grounds.names("sub") == ["deep"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("sub", "it is a directory, not a regular file"),
        (".", "it is a directory, not a regular file"),
        ("missing", "no such file or directory"),
        ("missing/file", "no such file or directory"),
        ("pipe", "it is a FIFO, not a regular file"),
        ("file/", "not a directory"),
    ],
)
def test_remove_of_anything_else_fails(grounds: Grounds, path: str, reason: str) -> None:
    """Only files and links are removed."""
    os.mkfifo(grounds.root / "pipe")
    with pytest.raises(ExecutionError, match=f"can't remove '{path}': {reason}"):
        grounds.writer().remove(path)
    assert grounds.names() == ["file", "pipe", "sub"]


def test_remove_after_a_change_is_refused(grounds: Grounds) -> None:
    """Whoever deletes a file means the content that was seen."""
    seen = (grounds.root / "file").stat().st_mtime_ns
    grounds.writer().write("file", b"new")
    with pytest.raises(ExecutionError, match="changed since it was read"):
        grounds.writer().remove("file", expect_mtime_ns=seen)
    grounds.writer().remove("file", expect_mtime_ns=(grounds.root / "file").stat().st_mtime_ns)
    assert not (grounds.root / "file").exists()


def test_only_a_new_file_is_written_where_asked(grounds: Grounds) -> None:
    """An old file stays; a new one takes the permission bits of the file that it is like."""
    before = (grounds.root / "file").read_bytes()
    (grounds.root / "file").chmod(0o750)
    with pytest.raises(ExecutionError, match="exists"):
        grounds.writer().write("file", b"new", only_new=True)
    assert (grounds.root / "file").read_bytes() == before
    assert grounds.writer().write("made/new", b"new", only_new=True, like="file").created
    assert (grounds.root / "made/new").stat().st_mode & 0o777 == 0o750
    assert sorted(path.name for path in (grounds.root / "made").iterdir()) == ["new"]


def test_file_made_meanwhile_is_not_replaced_by_a_new_one(
    grounds: Grounds, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program makes it after the last look; a plain rename would replace it."""
    commit = FileReplacement.commit

    def late(replacement: FileReplacement, name: str, *, only_new: bool = False) -> None:
        (grounds.root / name).write_bytes(b"theirs")
        commit(replacement, name, only_new=only_new)

    monkeypatch.setattr(FileReplacement, "commit", late)
    with pytest.raises(ExecutionError, match="exists"):
        grounds.writer().write("new", b"ours", only_new=True)
    assert (grounds.root / "new").read_bytes() == b"theirs"
    assert unfinished(grounds.root) == []
