"""``apply_patch``: several files by one patch, all of them or none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ToolError, ValidationError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.results import Artifact
from sessiontree.testing.context import call_tool, make_context
from sessiontree_tools.files.apply_patch import ApplyPatch


def enclosed(body: str) -> str:
    """Return a patch with these lines."""
    return f"*** Begin Patch\n{body}\n*** End Patch"


async def patch(root: Path, body: str) -> Any:
    """Apply a patch and return its result."""
    return await call_tool(ApplyPatch(), make_context(root, SessionKind.BRANCH), patch=enclosed(body))


def files(root: Path) -> dict[str, bytes]:
    """Return all files and links below a root with their content."""
    return {
        str(path.relative_to(root)): str(path.readlink()).encode() if path.is_symlink() else path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.mark.covers("S4")
async def test_patch_adds_updates_moves_and_deletes(tmp_path: Path) -> None:
    """One call, four kinds of change; the result names each file, and the diff shows them."""
    (tmp_path / "app.py").write_text("import os\n\ndef run():\n    a()\n    b()\n")
    (tmp_path / "tool.sh").write_text("#!/bin/sh\necho one\n")
    (tmp_path / "tool.sh").chmod(0o750)
    (tmp_path / "old").write_text("x")
    result = await patch(
        tmp_path,
        "*** Add File: docs/new.txt\n+first\n+\n+*** End Patch\n"
        "*** Update File: app.py\n@@ def run():\n     a()\n-    b()\n+    c()\n"
        "*** Update File: tool.sh\n*** Move to: bin/tool\n@@\n-echo one\n+echo two\n"
        "*** Delete File: old",
    )
    assert files(tmp_path) == {
        "app.py": b"import os\n\ndef run():\n    a()\n    c()\n",
        "bin/tool": b"#!/bin/sh\necho two\n",
        "docs/new.txt": b"first\n\n*** End Patch\n",
    }
    assert (tmp_path / "bin/tool").stat().st_mode & 0o777 == 0o750
    assert result.output == {
        "files": [
            {"path": "docs/new.txt", "change": "added"},
            {"path": "app.py", "change": "updated"},
            {"path": "bin/tool", "change": "moved", "from": "tool.sh"},
            {"path": "old", "change": "deleted"},
        ],
        "tolerant": [],
    }
    assert result.display == "patched 4 files: +5 -2"
    assert result.artifacts == (
        Artifact("file", "added", path="docs/new.txt"),
        Artifact("file", "updated", path="app.py"),
        Artifact("file", "moved", path="bin/tool"),
    )
    assert "@@ -4,2 +4,2 @@\n     a()\n-    b()\n+    c()\n" in result.details["diff"]


async def test_lines_spelled_differently_keep_the_bytes_of_the_file(tmp_path: Path) -> None:
    """CRLF, a missing last line end, a byte-order mark and curled quotes stay; the result tells."""
    (tmp_path / "a").write_bytes("\ufeffone\r\n  say “hi”\r\ntwo".encode())
    result = await patch(tmp_path, '*** Update File: a\n one\n say "hi"\n+new\n-two\n+three')
    assert (tmp_path / "a").read_bytes() == "\ufeffone\r\n  say “hi”\r\nnew\r\nthree".encode()
    assert result.output["tolerant"] == [
        {"path": "a", "line": 1, "differs_in": "quotes, dashes or kinds of space"}
    ]


BROKEN = {
    "a file that is missing": ("*** Update File: none\n-a\n+b", ExecutionError, "can't update 'none'"),
    "lines that are nowhere": ("*** Update File: kept\n-nowhere\n+b", ExecutionError, "looks like 'nowhere'"),
    "a file that is there": ("*** Add File: kept\n+b", ExecutionError, "there already"),
    "a target that is there": (
        "*** Update File: other\n*** Move to: kept",
        ExecutionError,
        "'kept' is there already",
    ),
    "nothing that changes": ("*** Update File: kept\n as it was", ExecutionError, "leaves it as it is"),
    "a place outside": ("*** Add File: ../outside\n+b", PermissionDenied, "outside"),
    "a link": ("*** Delete File: link", ExecutionError, "name the file itself, 'kept'"),
    "a directory": ("*** Delete File: folder", ExecutionError, "directory"),
    "bytes": ("*** Update File: bytes\n-a\n+b", ExecutionError, r"not UTF-8 text \(byte 1\)"),
    "no UTF-8 form": ("*** Add File: new\n+\ud83d", ValidationError, "unicode"),
    "no patch": ("nothing", ValidationError, "line 7 of the patch, 'nothing'"),
    "one file twice": ("*** Delete File: other\n*** Delete File: other", ExecutionError, "removed it before"),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_patch_with_one_mistake_changes_no_file(tmp_path: Path, case: str) -> None:
    """A good change is before the bad one each time."""
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "kept").write_text("as it was\n")
    (root / "other").write_text("1\n")
    (root / "good").write_text("1\n")
    (root / "bytes").write_bytes(b"\xff")
    (root / "link").symlink_to("kept")
    before = files(root)
    body, error, text = BROKEN[case]
    with pytest.raises(error, match=text):
        await patch(root, f"*** Update File: good\n-1\n+2\n*** Add File: deep/new\n+x\n{body}")
    assert files(root) == before
    assert not (tmp_path / "outside").exists()


async def test_link_to_a_file_at_the_root_is_not_the_file(tmp_path: Path) -> None:
    """Neither by its path from the root nor by an absolute one: the file it leads to stays."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "b").write_text("1\n")
    (tmp_path / "sub/b").symlink_to("../b")
    for path in ("sub/b", f"{tmp_path}/sub/b"):
        for body in (f"*** Delete File: {path}", f"*** Update File: {path}\n*** Move to: c\n-1\n+2"):
            with pytest.raises(ExecutionError):
                await patch(tmp_path, body)
    assert files(tmp_path) == {"b": b"1\n", "sub/b": b"../b"}


async def test_dots_lead_where_the_system_leads(tmp_path: Path) -> None:
    """Past a link to a directory, ``..`` is above the directory and not above the link."""
    (tmp_path / "other/deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("other/deep")
    (tmp_path / "x").write_text("1\n")
    (tmp_path / "other/x").write_text("1\n")
    result = await patch(
        tmp_path,
        "*** Update File: x\n-1\n+root\n*** Update File: link/../x\n-1\n+other\n"
        "*** Add File: link/../new\n+x",
    )
    assert [each["path"] for each in result.output["files"]] == ["x", "other/x", "other/new"]
    assert files(tmp_path) == {
        "link": b"other/deep",
        "x": b"root\n",
        "other/x": b"other\n",
        "other/new": b"x\n",
    }


async def test_what_was_written_is_taken_back_when_a_later_file_refuses(tmp_path: Path) -> None:
    """A file with two names may be read but not written: the files before it are as they were."""
    (tmp_path / "a").write_text("1\n")
    (tmp_path / "z").write_text("1\n")
    os.link(tmp_path / "z", tmp_path / "z2")
    (tmp_path / "gone").write_text("1\n")
    before = files(tmp_path)
    with pytest.raises(ToolError, match="hard links"):
        await patch(
            tmp_path,
            "*** Update File: a\n-1\n+2\n*** Add File: b\n+x\n"
            "*** Update File: z\n-1\n+2\n*** Delete File: gone",
        )
    assert files(tmp_path) == before


async def test_changes_of_one_file_follow_each_other(tmp_path: Path) -> None:
    """Also where a file is added and changed, or deleted and added, by one patch."""
    (tmp_path / "a").write_text("1\n2\n")
    await patch(
        tmp_path,
        "*** Update File: a\n-1\n+one\n*** Update File: ./a\n one\n-2\n+two\n"
        "*** Add File: b\n+x\n*** Update File: b\n-x\n+y\n"
        "*** Delete File: a\n*** Add File: a\n+new",
    )
    assert files(tmp_path) == {"a": b"new\n", "b": b"y\n"}


@pytest.mark.covers("S5")
async def test_worker_cannot_patch(tmp_path: Path) -> None:
    """It holds no writer."""
    with pytest.raises(PermissionDenied):
        await call_tool(
            ApplyPatch(), make_context(tmp_path, SessionKind.WORKER), patch=enclosed("*** Add File: a\n+x")
        )
    assert files(tmp_path) == {}
