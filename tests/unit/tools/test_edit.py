"""``edit``: one passage of a file, and nothing else of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.results import Artifact
from sessiontree.testing.context import call_tool, make_context
from sessiontree.workspace import WorkspaceReader
from sessiontree_tools.files.edit import Edit
from sessiontree_tools.files.text_file import MAX_BYTES


class Interfering(WorkspaceReader):
    """A reader during whose work someone else writes the file."""

    __slots__ = ("path",)
    path: Path

    def open(self, path: str) -> BinaryIO:
        """Open the file as it was, then change it."""
        stream = super().open(path)
        self.path.unlink()
        self.path.write_text("changed meanwhile")
        return stream


@pytest.mark.covers("S3")
async def test_passage_is_replaced_and_the_rest_kept(tmp_path: Path) -> None:
    """Byte-order mark, CRLF, mode and everything around the passage stay."""
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\ntwo\r\nthree\r\n".encode())
    path.chmod(0o640)
    ctx = make_context(tmp_path, SessionKind.BRANCH)
    result = await call_tool(Edit(), ctx, path="a.txt", old_text="two", new_text="2\n2½")
    assert path.read_bytes() == "\ufeffone\r\n2\r\n2½\r\nthree\r\n".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert result.output == {"path": "a.txt", "replaced_at_line": 2, "tolerant": False}
    assert result.artifacts == (Artifact("file", "edited", path="a.txt"),)
    assert isinstance(result.details, dict)
    assert result.details["diff"] == (
        "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,4 @@\n \ufeffone\r\n-two\r\n+2\r\n+2½\r\n three\r\n"
    )


async def test_tolerant_match_says_that_it_was_one(tmp_path: Path) -> None:
    """A model that typed straight quotes learns that the file has curly ones."""
    (tmp_path / "a").write_text("it’s “fine” – here\n")
    result = await call_tool(
        Edit(), make_context(tmp_path), path="a", old_text='it\'s "fine"', new_text="it is fine"
    )
    assert (tmp_path / "a").read_text() == "it is fine – here\n"
    assert result.output == {"path": "a", "replaced_at_line": 1, "tolerant": True}
    assert "tolerant" in result.display


async def test_empty_new_text_removes_the_passage(tmp_path: Path) -> None:
    """Removing is replacing by nothing."""
    (tmp_path / "a").write_text("keep drop keep")
    await call_tool(Edit(), make_context(tmp_path), path="a", old_text=" drop", new_text="")
    assert (tmp_path / "a").read_text() == "keep keep"


async def test_change_made_meanwhile_is_not_lost(tmp_path: Path) -> None:
    """A file that changed between reading and writing is left as the other one wrote it."""
    (tmp_path / "a").write_text("one two")
    os.utime(tmp_path / "a", ns=(1, 1))
    reader = Interfering(tmp_path)
    reader.path = tmp_path / "a"
    with pytest.raises(ExecutionError, match="changed since"):
        await call_tool(Edit(), make_context(tmp_path, reader=reader), path="a", old_text="two", new_text="2")
    assert (tmp_path / "a").read_text() == "changed meanwhile"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"path": "missing"}, ExecutionError, "no such file"),
        ({"path": "folder"}, ExecutionError, "directory"),
        ({"path": "../outside"}, PermissionDenied, "outside"),
        ({"old_text": "absent"}, ExecutionError, "can't edit 'a': old_text was not found"),
        ({"old_text": "o"}, ExecutionError, "found 2 times, in lines 1, 2"),
        ({"new_text": "one"}, ExecutionError, "nothing was changed"),
        ({"path": "latin"}, ExecutionError, "not UTF-8 text .byte 4"),
        ({"path": "huge"}, ExecutionError, f"{MAX_BYTES + 1} bytes"),
        ({"old_text": ""}, ValidationError, "at least 1"),
        ({"new_text": "half \ud83d"}, ValidationError, "surrogate"),
        ({"new_text": None}, ValidationError, "string"),
        ({"path": ""}, ValidationError, "at least 1"),
        ({"replace_all": True}, ValidationError, "not permitted"),
    ],
)
async def test_bad_editing_is_refused_and_changes_nothing(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Each mistake has its own typed error, and every file is as it was."""
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "a").write_text("one\ntwo\n")
    (root / "latin").write_bytes(b"caf\xe9 one")
    (root / "huge").touch()
    os.truncate(root / "huge", MAX_BYTES + 1)
    before = _contents(root)
    given = {"path": "a", "old_text": "one", "new_text": "1"} | arguments
    with pytest.raises(error, match=text):
        await call_tool(Edit(), make_context(root), **given)
    assert _contents(root) == before


def _contents(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}
