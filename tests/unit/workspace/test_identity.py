"""Whether a path leads to the same directory on two machines; the other machine is a function here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sessiontree.workspace.identity import (
    MAX_ENTRIES,
    DirectoryView,
    explain_difference,
    look_at_directory,
    mark_changed,
)

Look = Callable[[bool], Awaitable[DirectoryView | str]]


def seen_at(path: Path) -> Look:
    """Return how another machine looks at a path."""

    async def look(entries: bool) -> DirectoryView | str:
        return look_at_directory(path, entries=entries)

    return look


def status_of(path: Path) -> os.stat_result:
    """Return what the kernel says of a path."""
    return path.stat()


async def at_once(seconds: float) -> None:
    """Wait for nothing."""


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A directory with a file and a folder."""
    place = tmp_path / "workspace"
    (place / "folder").mkdir(parents=True)
    (place / "file").write_text("text", "utf-8")
    return place


async def test_same_directory_is_recognised(workspace: Path) -> None:
    """It is the same one under another name too, and nothing but the time of its last change is new."""
    before = status_of(workspace)
    (workspace.parent / "link").symlink_to(workspace)
    assert await explain_difference(workspace, seen_at(workspace.parent / "link"), at_once) is None
    after = status_of(workspace)
    assert (before.st_mtime_ns, before.st_ino, before.st_mode) == (
        after.st_mtime_ns,
        after.st_ino,
        after.st_mode,
    )
    assert after.st_ctime_ns >= before.st_ctime_ns
    assert [each[0] for each in look_at_directory(workspace, entries=True).entries] == ["file", "folder"]


async def test_copy_is_another_directory(workspace: Path) -> None:
    """A copy with the same content and times is refused, and the reason says what differs."""
    copy = workspace.parent / "copy"
    shutil.copytree(workspace, copy)
    reason = await explain_difference(workspace, seen_at(copy), at_once)
    there, here = status_of(copy).st_ino, status_of(workspace).st_ino
    assert reason == f"the directory there has inode {there}, and here it has {here}"


async def test_copy_of_a_disk_is_another_directory(workspace: Path) -> None:
    """The same inode numbers and times, as on a copied disk, do not suffice: a change is not seen there."""
    copied = look_at_directory(workspace, entries=True)

    async def look(entries: bool) -> DirectoryView | str:
        return copied

    assert (
        await explain_difference(workspace, look, at_once)
        == "a change of the directory here is not seen there"
    )


async def test_directory_that_changes_elsewhere_is_another_one(workspace: Path) -> None:
    """A time of change that this machine never saw is not this directory's."""

    async def look(entries: bool) -> DirectoryView | str:
        seen = look_at_directory(workspace, entries=entries)
        return replace(seen, changed_ns=seen.changed_ns + 10**9)

    assert (
        await explain_difference(workspace, look, at_once)
        == "the directory there has changed later than here"
    )


async def test_late_answers_are_asked_for_again(workspace: Path) -> None:
    """A file system may show what it knew some seconds ago; then the other machine looks again."""
    answers = [look_at_directory(workspace, entries=False)] * 3
    waited: list[float] = []

    async def look(entries: bool) -> DirectoryView | str:
        return answers.pop() if answers else look_at_directory(workspace, entries=entries)

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    assert await explain_difference(workspace, look, pause) is None
    assert len(waited) == 3


async def test_sessions_may_write_meanwhile(workspace: Path) -> None:
    """A directory that changes while it is compared is still the same one."""
    numbers = iter(range(100))

    async def look(entries: bool) -> DirectoryView | str:
        (workspace / f"made-{next(numbers)}").touch()
        seen = look_at_directory(workspace, entries=entries)
        (workspace / f"made-{next(numbers)}").touch()
        return seen

    assert await explain_difference(workspace, look, at_once) is None


async def test_missing_directory_is_named(workspace: Path) -> None:
    """What the other machine says is the reason; a directory that is missing here is a reason as well."""

    async def look(entries: bool) -> DirectoryView | str:
        return "no such directory can be read there"

    assert await explain_difference(workspace, look, at_once) == "no such directory can be read there"
    reason = await explain_difference(workspace / "missing", look, at_once)
    assert reason is not None
    assert reason.startswith("it can't be looked at on the node of the state directory: ")


def test_entries_are_the_first_by_name(tmp_path: Path) -> None:
    """The sample is bounded, and the same on every machine."""
    for number in range(MAX_ENTRIES + 5):
        (tmp_path / f"{number:03}").touch()
    names = [each[0] for each in look_at_directory(tmp_path, entries=True).entries]
    assert names == [f"{number:03}" for number in range(MAX_ENTRIES)]
    assert look_at_directory(tmp_path, entries=False).entries == ()


def test_directory_of_another_user_is_not_renewed() -> None:
    """Only the owner may renew the time; without that, entries are compared as well."""
    if os.geteuid() == 0:
        assert not _as_nobody(Path("/usr"))
    else:
        assert not mark_changed(Path("/usr"))


def _as_nobody(path: Path) -> bool:
    """Return whether a user without rights may renew a directory's time."""
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setuid(65534)
        os._exit(int(mark_changed(path)))
    return os.waitpid(child, 0)[1] != 0
