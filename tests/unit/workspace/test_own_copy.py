"""The copy of a workspace: what is in it, what is kept of it, and how much it may hold."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import ExecutionError
from sessiontree.workspace import own_copy
from sessiontree.workspace.copied_files import FileBounds
from sessiontree.workspace.own_copy import OwnCopy


def names(root: Path) -> set[str]:
    """Return the paths of files and links below a root."""
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or path.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A workspace with everything that can be in one."""
    root = tmp_path / "source"
    (root / "d/e").mkdir(parents=True)
    (root / "a").write_bytes(b"\xff\0binary")
    (root / "d/e/run").write_text("#!/bin/sh\n")
    (root / "d/e/run").chmod(0o755)
    (root / "link").symlink_to("a")
    (root / "out").symlink_to("/etc/passwd")
    (root / ".GIT").mkdir()
    (root / ".GIT/config").write_text("[core]")
    (root / "d/.git").write_text("gitdir: /elsewhere")
    (root / "secret").mkdir()
    (root / "secret/key").write_text("key")
    os.mkfifo(root / "pipe")
    (root / os.fsdecode(b"\xe9t\xe9")).write_text("1")
    return root


@pytest.mark.covers("OWN1")
def test_copy_has_files_and_links_and_shares_nothing(tmp_path: Path, source: Path) -> None:
    """No git directory, no hidden place, no pipe; bits of execution stay; no file has two names."""
    copy = OwnCopy(tmp_path / "place" / ("a" * 32))
    made = copy.make(source, [source / "secret"])
    assert names(copy.root) == {"a", "d/e/run", "link", "out", os.fsdecode(b"\xe9t\xe9")}
    assert (made.how, made.files, made.commit) == ("all", 5, "")
    assert (copy.root / "d/e/run").stat().st_mode & 0o777 == 0o755
    assert (copy.root / "a").stat().st_nlink == 1
    assert (copy.root / "out").readlink() == Path("/etc/passwd")
    (copy.root / "a").write_bytes(b"mine")
    assert (source / "a").read_bytes() == b"\xff\0binary"


@pytest.mark.covers("OWN3")
def test_what_is_kept_is_what_differs(tmp_path: Path, source: Path) -> None:
    """Contents by path, links and names that are no UTF-8 with the reason why they can't be merged."""
    copy = OwnCopy(tmp_path / "place")
    copy.make(source)
    (copy.root / "a").write_bytes(b"changed")
    (copy.root / "d/e/run").chmod(0o644)
    (copy.root / "link").unlink()
    (copy.root / "out").unlink()
    (copy.root / "out").symlink_to("/etc/shadow")
    (copy.root / "new").write_bytes(b"2")
    (copy.root / os.fsdecode(b"\xe9t\xe9")).write_text("2")
    (copy.root / ".git").mkdir()
    (copy.root / ".git/config").write_text("[core]")
    changes = copy.finish(source, "")
    assert not changes.lost
    assert {each.path: each.unusable for each in changes.files} == {
        "a": "",
        "d/e/run": "",
        "link": "it is or was a link",
        "new": "",
        "out": "it is or was a link",
        "\\xe9t\\xe9": "its name is not UTF-8",
    }
    assert copy.content(changes.files, "a") == b"changed"
    assert copy.content(changes.files, "new") == b"2"
    with pytest.raises(ExecutionError, match="no changed file"):
        copy.content(changes.files, "out")
    assert b"GIT binary patch" in changes.patch
    assert b"# not in this patch: 'out'" in changes.patch
    copy.clear()
    assert not copy.root.exists()
    assert copy.content(changes.files, "new") == b"2"
    contents = tmp_path / "place/contents"
    contents.write_bytes(b"x" * contents.stat().st_size)
    with pytest.raises(ExecutionError, match="damaged"):
        copy.content(changes.files, "new")


def _act_after(monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[], object]) -> None:
    """Let a process of the child act once, after a function that the copy is taken in with."""
    original = getattr(own_copy, name)

    def call(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        answer = original(*given, **named)
        act()
        return answer

    monkeypatch.setattr(own_copy, name, call)


def test_file_that_goes_while_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The changes are lost, with the reason; the copy stays as it is."""
    (tmp_path / "source").mkdir()
    copy = OwnCopy(tmp_path / "place")
    copy.make(tmp_path / "source")
    (copy.root / "a").write_text("1")
    (copy.root / "b").write_text("2")
    _act_after(monkeypatch, "scan_files", (copy.root / "b").unlink)
    changes = copy.finish(tmp_path / "source", "")
    assert (changes.files, changes.patch) == ((), b"")
    assert "No such file or directory" in changes.lost
    assert (copy.root / "a").read_text() == "1"


@pytest.mark.parametrize("goes", [True, False])
def test_file_that_changes_once_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goes: bool
) -> None:
    """What was kept stays; the patch says that the file is not in it."""
    (tmp_path / "source").mkdir()
    copy = OwnCopy(tmp_path / "place")
    copy.make(tmp_path / "source")
    (copy.root / "a").write_text("1")
    (copy.root / "b").write_text("2")
    _act_after(
        monkeypatch,
        "read_file",
        (copy.root / "a").unlink if goes else lambda: (copy.root / "a").write_text("later"),
    )
    changes = copy.finish(tmp_path / "source", "")
    assert not changes.lost
    assert copy.content(changes.files, "a") == b"1"
    assert changes.patch.startswith(b"# not in this patch: 'a'\ndiff --git b/b b/b\n")


def test_patch_applies_to_the_commit(tmp_path: Path) -> None:
    """Also where the parent has changed the file since: its first content is then in the commit."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "a").write_text("1\n")
    (source / "b").write_bytes(b"\0binary")
    settings = ("git", "-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "x")):
        subprocess.run([*settings, *words], cwd=source, check=True)
    copy = OwnCopy(tmp_path / "place")
    made = copy.make(source)
    assert (made.how, len(made.commit)) == ("git", 40)
    (copy.root / "a").write_text("1\n2\n")
    (copy.root / "b").write_bytes(b"\0other")
    (copy.root / "c").write_text("new\n")
    (source / "a").write_text("changed meanwhile\n")
    (tmp_path / "p").write_bytes(copy.finish(source, made.commit).patch)
    subprocess.run(["git", "checkout", "-q", "--", "a"], cwd=source, check=True)
    subprocess.run(["git", "apply", "--index", str(tmp_path / "p")], cwd=source, check=True)
    assert (source / "a").read_text() == "1\n2\n"
    assert (source / "b").read_bytes() == b"\0other"
    assert (source / "c").read_text() == "new\n"


@pytest.mark.covers("OWN1")
@pytest.mark.parametrize("bounds", [FileBounds(files=4), FileBounds(bytes=12)])
def test_what_is_too_large_is_refused_and_leaves_nothing(
    tmp_path: Path, source: Path, bounds: FileBounds
) -> None:
    """The error says what to do."""
    copy = OwnCopy(tmp_path / "place")
    with pytest.raises(ExecutionError, match=r"more than .*; remove or ignore some"):
        copy.make(source, bounds=bounds)
    assert not (tmp_path / "place").exists()


@pytest.mark.covers("OWN2")
def test_repository_may_not_lead_git_elsewhere(tmp_path: Path) -> None:
    """A head that names a path, and objects that are a link, count as none."""
    source = tmp_path / "source"
    (source / ".git").mkdir(parents=True)
    (source / ".git/HEAD").write_text("ref: refs/../../../outside\n")
    (tmp_path / "outside").write_text("a" * 40)
    (tmp_path / "objects").mkdir()
    (source / ".git/objects").symlink_to(tmp_path / "objects")
    (source / "a").write_text("1")
    copy = OwnCopy(tmp_path / "place")
    made = copy.make(source)
    assert (made.how, made.commit, made.files) == ("git", "", 1)
    assert not (tmp_path / "place/git/objects/info/alternates").exists()
