"""Listing and walking directories."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sessiontree.contracts.errors import ExecutionError
from sessiontree.workspace.root import TEMPORARY_PREFIX

if TYPE_CHECKING:
    from tests.unit.workspace.conftest import Grounds


def test_list_is_sorted_and_reports_links_as_links(grounds: Grounds) -> None:
    """Entries come by name, with paths from the root; a link is a link, dangling or not."""
    (grounds.root / "sub" / "away").symlink_to("/nowhere")
    (grounds.root / "sub" / "back").symlink_to("..")
    found = [(entry.path, entry.type) for entry in grounds.reader().list("sub")]
    assert found == [
        ("sub/away", "link"),
        ("sub/back", "link"),
        ("sub/deep", "directory"),
        ("sub/inner", "file"),
    ]


def test_list_through_a_link_gives_resolved_paths(grounds: Grounds) -> None:
    """A directory named by a link is listed under its own path."""
    (grounds.root / "folder").symlink_to("sub")
    assert grounds.reader().list("folder") == grounds.reader().list("sub")


@pytest.mark.parametrize(("path", "reason"), [("file", "not a directory"), ("missing", "no such file")])
def test_list_of_no_directory_fails(grounds: Grounds, path: str, reason: str) -> None:
    """A file or a missing name cannot be listed or walked."""
    with pytest.raises(ExecutionError, match=f"can't list '{path}': {reason}"):
        grounds.reader().list(path)
    with pytest.raises(ExecutionError, match=f"can't walk '{path}': {reason}"):
        next(grounds.reader().walk(path))


def test_walk_goes_depth_first_in_order_of_names(grounds: Grounds) -> None:
    """Files and links come in the order of names, a directory's content where its name is."""
    for path in ("sub/deep/z", "sub/deeper", "a", "sub.txt"):
        (grounds.root / path).write_bytes(b"")
    os.mkfifo(grounds.root / "pipe")
    found = [entry.path for entry in grounds.reader().walk()]
    assert found == ["a", "file", "sub/deep/z", "sub/deeper", "sub/inner", "sub.txt"]
    assert [entry.path for entry in grounds.reader().walk("sub/deep")] == ["sub/deep/z"]


def test_walk_does_not_enter_linked_directories(grounds: Grounds) -> None:
    """A link to a directory, even to the root itself, is yielded and not entered."""
    (grounds.root / "sub" / "loop").symlink_to("..")
    (grounds.root / "out").symlink_to(grounds.outside)
    found = [(entry.path, entry.type) for entry in grounds.reader().walk()]
    assert found == [("file", "file"), ("out", "link"), ("sub/inner", "file"), ("sub/loop", "link")]


def test_unfinished_writes_are_left_out(grounds: Grounds) -> None:
    """What a write has begun is not content yet: neither listed nor walked."""
    (grounds.root / f"{TEMPORARY_PREFIX}0123456789abcdef").write_bytes(b"half")
    assert [entry.path for entry in grounds.reader().list()] == ["file", "sub"]
    assert [entry.path for entry in grounds.reader().walk()] == ["file", "sub/inner"]


@pytest.mark.slow
def test_tree_deeper_than_stack_descriptors_and_path_limit_is_walked(
    grounds: Grounds, count_descriptors: Callable[[], int]
) -> None:
    """Depth costs neither recursion nor descriptors, and its files open by the path that was reported."""
    depth, name = 1100, "level"
    fds = [os.open(grounds.root / "sub" / "deep", os.O_PATH)]
    try:
        for _ in range(depth):
            os.mkdir(name, dir_fd=fds[-1])
            fds.append(os.open(name, os.O_PATH, dir_fd=fds[-1]))
        os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=fds[-1]))
        os.close(os.open("side", os.O_CREAT | os.O_WRONLY, dir_fd=fds[1]))
        reader = grounds.reader()
        walk = reader.walk("sub/deep")
        before = count_descriptors()
        bottom = next(walk)
        assert count_descriptors() - before < 40
        assert bottom.path == f"sub/deep/{'level/' * depth}bottom"
        assert [entry.path for entry in walk] == ["sub/deep/level/side"]
        reader.open(bottom.path).close()
        assert grounds.writer().write(bottom.path, b"x").created is False
    finally:
        # No remover goes this deep by path, so the tree is taken down from its end.
        for fd, file in ((fds[-1], "bottom"), (fds[1], "side")):
            os.unlink(file, dir_fd=fd)
        while len(fds) > 1:
            os.close(fds.pop())
            os.rmdir(name, dir_fd=fds[-1])
        os.close(fds.pop())


def test_walk_short_of_descriptors_says_so(grounds: Grounds) -> None:
    """Running out of descriptors is an error, not a directory that may not be read: no file is left out."""
    chain = "/".join(f"d{level}" for level in range(12))
    (grounds.root / chain).mkdir(parents=True)
    (grounds.root / chain / "bottom").write_bytes(b"")
    walk = grounds.reader().walk()
    taken = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
    limit = next(number for number in count() if number - sum(fd < number for fd in taken) == 8)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        with pytest.raises(ExecutionError, match="too many open files"):
            list(walk)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [entry.path for entry in grounds.reader().walk("d0")] == [f"{chain}/bottom"]


def test_directory_moved_away_during_a_walk_is_told(grounds: Grounds) -> None:
    """A walk that cannot find its way back says so instead of leaving files out in silence."""
    chain = "/".join(f"d{level}" for level in range(30))
    (grounds.root / chain).mkdir(parents=True)
    (grounds.root / chain / "bottom").write_bytes(b"")
    walk = grounds.reader().walk()
    assert next(walk).path == f"{chain}/bottom"
    (grounds.root / "d0" / "d1").rename(grounds.outside / "d1")
    with pytest.raises(ExecutionError, match="a directory below it was moved meanwhile"):
        list(walk)
