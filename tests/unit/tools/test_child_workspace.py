"""``child_workspace``: a child's changes are merged whole or not at all; the parent's are never lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.handles.ports import Written
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.child_workspaces import ChangedFile, ChildChanges
from sessiontree.testing.context import call_tool, make_context
from sessiontree.workspace import WorkspaceWriter
from sessiontree_tools.sessions.child_workspace import ChildWorkspace
from tests.unit.tools.changes_fakes import MappedChanges, changed, child


async def merge(root: Path, given: MappedChanges, **more: Any) -> Any:
    """Merge the changes of ``main/b1`` and return the output."""
    ctx = make_context(root, SessionKind.MAIN, child_workspaces=given, **more)
    return (await call_tool(ChildWorkspace(), ctx, action="merge", target="main/b1")).output


def state_of(root: Path) -> dict[str, tuple[bytes, int]]:
    """Return content and permission bits of every file below a root."""
    return {
        str(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode & 0o777)
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def conflicts(output: Any) -> dict[str, str]:
    """Return the reasons of conflicts by path."""
    assert output["status"] == "conflict", output
    return {row["path"]: row["reason"] for row in output["conflicts"]}


@pytest.mark.covers("OWN4", "OWN5")
async def test_files_are_added_updated_removed_and_made_executable(tmp_path: Path) -> None:
    """One merge, once: a repeated one changes nothing, whatever the files are by then."""
    (tmp_path / "old").write_bytes(b"1\n")
    (tmp_path / "gone").write_bytes(b"x")
    (tmp_path / "run").write_bytes(b"#!/bin/sh\n")
    (tmp_path / "mine").write_bytes(b"not committed")
    contents = {"old": b"2\n", "new/deep": b"\xff\0", "run": b"#!/bin/sh\n"}
    given = MappedChanges(
        {
            "main/b1": child(
                changed("gone", b"x", None),
                changed("new/deep", None, b"\xff\0"),
                changed("old", b"1\n", b"2\n"),
                changed("run", b"#!/bin/sh\n", b"#!/bin/sh\n", executable=True),
            )
        },
        contents,
    )
    output = await merge(tmp_path, given)
    assert output == {
        "status": "merged",
        "session_id": "main/b1",
        "files": [
            {"path": "gone", "change": "deleted"},
            {"path": "new/deep", "change": "added"},
            {"path": "old", "change": "updated"},
            {"path": "run", "change": "updated"},
        ],
        "left_out": 0,
    }
    now = state_of(tmp_path)
    assert {path: data for path, (data, _) in now.items()} == {**contents, "mine": b"not committed"}
    assert now["run"][1] & 0o111 == 0o111
    assert now["old"][1] & 0o111 == 0
    (tmp_path / "old").write_bytes(b"3\n")
    assert await merge(tmp_path, given) == output
    assert (tmp_path / "old").read_bytes() == b"3\n"
    assert given.settled == {"main/b1": "merged"}


@pytest.mark.covers("OWN5")
async def test_merge_that_was_cut_is_completed(tmp_path: Path) -> None:
    """What an earlier attempt wrote already is not a conflict."""
    (tmp_path / "a").write_bytes(b"new a")
    (tmp_path / "b").write_bytes(b"old b")
    files = (changed("a", b"old a", b"new a"), changed("b", b"old b", b"new b"), changed("c", b"c", None))
    given = MappedChanges({"main/b1": child(*files)}, {"a": b"new a", "b": b"new b"})
    assert (await merge(tmp_path, given))["status"] == "merged"
    assert state_of(tmp_path).keys() == {"a", "b"}
    assert (tmp_path / "b").read_bytes() == b"new b"


@pytest.mark.covers("OWN4")
async def test_what_changed_on_both_sides_is_a_conflict_and_nothing_is_changed(tmp_path: Path) -> None:
    """Each reason is named; files that would fit stay as they are, too."""
    for name in ("fits", "edited", "made", "dir/kept", "edited_then_removed"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / "to").symlink_to("fits")
    (tmp_path / "by").symlink_to("dir")
    (tmp_path / "dangling").symlink_to("nowhere")
    files = [
        changed("fits", b"mine", b"theirs"),
        changed("edited", b"base", b"theirs"),
        changed("made", None, b"theirs"),
        changed("removed_here", b"base", b"theirs"),
        changed("edited_then_removed", b"base", None),
        changed("dir", None, b"theirs"),
        changed("to", b"mine", b"theirs"),
        changed("by/kept", b"mine", b"theirs"),
        changed("dangling", None, b"theirs"),
        changed("fits/below", None, b"theirs"),
        ChangedFile("link", "", "0" * 64, 0, unusable="it is or was a link"),
    ]
    before = state_of(tmp_path)
    given = MappedChanges({"main/b1": child(*files)}, {each.path: b"theirs" for each in files})
    found = conflicts(await merge(tmp_path, given))
    assert found == {
        "edited": "it was changed here, and changed by the child",
        "made": "it was made here, and changed by the child",
        "removed_here": "it was removed here, and changed by the child",
        "edited_then_removed": "it was changed here, and removed by the child",
        "dir": "it is a directory here, or reached through one",
        "to": "it is a link here, or reached through one",
        "by/kept": "it is a link here, or reached through one",
        "dangling": "it is a link here, or reached through one",
        "fits/below": "a file is on the way to it",
        "link": "it is or was a link; merge it by hand",
    }
    assert state_of(tmp_path) == before
    assert not (tmp_path / "nowhere").exists()
    assert given.settled == {}


@pytest.mark.covers("OWN4")
async def test_refused_file_takes_the_others_back(tmp_path: Path) -> None:
    """Hooks of git are protected: no merge writes there, and what was written before is as it was."""
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / ".git/config").write_text("[core]\n\thooksPath = tools\n")
    (tmp_path / "tools").mkdir()
    (tmp_path / "a").write_bytes(b"1")
    before = state_of(tmp_path)
    files = (
        changed("a", b"1", b"2"),
        changed("b", None, b"new"),
        changed("tools/pre-commit", None, b"#!/bin/sh\n", executable=True),
    )
    given = MappedChanges(
        {"main/b1": child(*files)}, {"a": b"2", "b": b"new", "tools/pre-commit": b"#!/bin/sh\n"}
    )
    found = conflicts(await merge(tmp_path, given))
    assert list(found) == ["tools/pre-commit"]
    assert "protected" in found["tools/pre-commit"]
    assert state_of(tmp_path) == before


class DivertingWriter:
    """Puts a link on the way just before it writes, as another program may."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._inner = WorkspaceWriter(root)

    def write(self, path: str, data: bytes, **more: Any) -> Written:
        if path == "way/new":
            (self._root / "way").rename(self._root / "elsewhere")
            (self._root / "way").symlink_to("other")
        return self._inner.write(path, data, **more)

    def remove(self, path: str, **more: Any) -> None:
        self._inner.remove(path, **more)


async def test_link_that_appears_on_the_way_is_a_conflict(tmp_path: Path) -> None:
    """The file that went to the wrong place is removed there, and the others are taken back."""
    for name in ("way", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "a").write_bytes(b"1")
    files = (changed("a", b"1", b"2"), changed("way/new", None, b"new"))
    given = MappedChanges({"main/b1": child(*files)}, {"a": b"2", "way/new": b"new"})
    found = conflicts(await merge(tmp_path, given, writer=DivertingWriter(tmp_path)))
    assert "led to 'other/new'" in found["way/new"]
    assert state_of(tmp_path) == {"a": (b"1", (tmp_path / "a").stat().st_mode & 0o777)}


async def test_list_diff_and_discard(tmp_path: Path) -> None:
    """A list has each child's state; a diff is text from outside if its child was tainted."""
    tainted = ChildChanges("main/b2", None, "kept", "", (changed("x", None, b"1"),), 10, taint="web")
    given = MappedChanges({"main/b1": child(changed("a", None, b"1")), "main/b2": tainted})
    ctx = make_context(tmp_path, SessionKind.MAIN, child_workspaces=given)
    tool = ChildWorkspace()
    assert (await call_tool(tool, ctx, action="list")).output == {
        "children": [
            {"session_id": "main/b1", "label": "fixer", "state": "kept", "files": 1},
            {"session_id": "main/b2", "state": "kept", "files": 1},
        ]
    }
    shown = await call_tool(tool, ctx, action="diff", target="main/b1")
    assert (shown.output["diff"], shown.untrusted) == ("diff --git a/x b/x\n", False)  # type: ignore[index, call-overload]
    assert (await call_tool(tool, ctx, action="diff", target="main/b2")).untrusted
    gone = await call_tool(tool, ctx, action="discard", target="main/b1")
    assert gone.output == {"status": "discarded", "session_id": "main/b1"}
    assert given.settled == {"main/b1": "discarded"}


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, "it is no child"),
        ({"main/b1": ChildChanges("main/b1", None, "working", "")}, "has not ended"),
        ({"main/b1": ChildChanges("main/b1", None, "discarded", "")}, "were discarded"),
        ({"main/b1": ChildChanges("main/b1", None, "kept", "", lost="too many")}, "not be kept: too many"),
    ],
)
async def test_changes_that_can_t_be_merged_say_why(
    tmp_path: Path, known: dict[str, ChildChanges], said: str
) -> None:
    """A child that works, is unknown, or whose changes are gone."""
    with pytest.raises(ExecutionError, match=said):
        await merge(tmp_path, MappedChanges(known))


async def test_target_and_a_writer_are_needed(tmp_path: Path) -> None:
    """Who may not write can't merge; an action without its target names the parameter."""
    ctx = make_context(tmp_path, SessionKind.MAIN, child_workspaces=MappedChanges({}))
    with pytest.raises(ValidationError, match="merge needs the id or label of a child"):
        await call_tool(ChildWorkspace(), ctx, action="merge")
    given = MappedChanges({"main/b1": child(changed("a", None, b"1"))}, {"a": b"1"})
    with pytest.raises(PermissionDenied, match="holds no writer"):
        await merge(tmp_path, given, writer=None)
