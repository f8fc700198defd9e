"""``write``: whole files, exactly as given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import ExecutionError, PermissionDenied, ValidationError
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.recorded.results import Artifact
from sessiontree.testing.context import call_tool, make_context
from sessiontree_tools.files.write import Write


@pytest.mark.parametrize(
    "content", ["", "a", "one\r\ntwo\nthree\r", "\ufeffmark", "𝄞 \0 \u202e", "x" * 300_000]
)
async def test_file_holds_exactly_the_content(tmp_path: Path, content: str) -> None:
    """Bytes are the text's UTF-8 form: nothing trimmed, no line end changed, empty allowed."""
    ctx = make_context(tmp_path, SessionKind.BRANCH)
    result = await call_tool(Write(), ctx, path="deep/er/a.txt", content=content)
    size = len(content.encode())
    assert (tmp_path / "deep/er/a.txt").read_bytes() == content.encode()
    assert result.output == {"path": "deep/er/a.txt", "bytes": size, "created": True}
    assert result.display == f"wrote {size} bytes to deep/er/a.txt"
    assert result.artifacts == (Artifact("file", "created", path="deep/er/a.txt"),)


@pytest.mark.covers("A23")
async def test_existing_file_is_replaced(tmp_path: Path) -> None:
    """A shorter content leaves nothing of the longer one, and the result says replaced."""
    (tmp_path / "a").write_text("a long line")
    result = await call_tool(Write(), make_context(tmp_path), path="a", content="b")
    assert (tmp_path / "a").read_text() == "b"
    assert result.output == {"path": "a", "bytes": 1, "created": False}
    assert result.artifacts[0].description == "replaced"


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"path": "folder", "content": "x"}, ExecutionError, "directory"),
        ({"path": "kept/below", "content": "x"}, ExecutionError, "not a directory"),
        ({"path": "../outside", "content": "x"}, PermissionDenied, "outside"),
        ({"path": "leading/out", "content": "x"}, PermissionDenied, "outside"),
        ({"path": "a\0b", "content": "x"}, ExecutionError, "NUL"),
        ({"path": "", "content": "x"}, ValidationError, "at least 1"),
        ({"path": "kept", "content": "half \ud83d"}, ValidationError, "surrogate"),
        ({"path": "kept", "content": None}, ValidationError, "string"),
        ({"path": "kept"}, ValidationError, "required"),
        ({"path": "kept", "content": "x", "mode": "a"}, ValidationError, "not permitted"),
    ],
)
async def test_bad_writing_is_refused_and_changes_nothing(
    tmp_path: Path, arguments: dict[str, Any], error: type[Exception], text: str
) -> None:
    """Each mistake has its own typed error, and what was there is still there."""
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "kept").write_text("as it was")
    (root / "leading").symlink_to(tmp_path)
    with pytest.raises(error, match=text):
        await call_tool(Write(), make_context(root), **arguments)
    assert sorted(path.name for path in root.iterdir()) == ["folder", "kept", "leading"]
    assert (root / "kept").read_text() == "as it was"
    assert not (tmp_path / "outside").exists()


async def test_surrogate_half_names_the_parameter(tmp_path: Path) -> None:
    """The error points at the content."""
    with pytest.raises(ValidationError) as caught:
        await call_tool(Write(), make_context(tmp_path), path="a", content="\ud83d")
    assert caught.value.field == "/content"
