"""A Worker only looks: what changes something refuses before it does anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sessiontree.contracts.errors import PermissionDenied
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.tools.tool import Tool
from sessiontree.testing.context import call_tool, make_context
from sessiontree_tools.commands.exec import Exec
from sessiontree_tools.files.edit import Edit
from sessiontree_tools.files.write import Write
from sessiontree_tools.sessions.message import Message
from sessiontree_tools.sessions.sessions import SessionsSpawn

REFUSED: list[tuple[Tool[Any], dict[str, Any]]] = [
    (Write(), {"path": "notes.md", "content": "changed"}),
    (Write(), {"path": "new/deep.md", "content": ""}),
    (Edit(), {"path": "notes.md", "old_text": "kept", "new_text": "changed"}),
    (Exec(), {"command": "echo changed > notes.md"}),
    (Message(), {"text": "hello"}),
    (SessionsSpawn(), {"kind": "worker", "task": "look"}),
]


@pytest.mark.covers("A36", "A34")
@pytest.mark.parametrize(("tool", "arguments"), REFUSED)
async def test_worker_is_refused_and_the_disk_is_untouched(
    tmp_path: Path, tool: Tool[Any], arguments: dict[str, Any]
) -> None:
    """Without the handle nothing can be called; content, names and times stay."""
    notes = tmp_path / "notes.md"
    notes.write_text("kept")
    before = notes.stat()
    with pytest.raises(PermissionDenied) as refusal:
        await call_tool(tool, make_context(tmp_path, SessionKind.WORKER), **arguments)
    assert refusal.value.tier is tool.tier
    assert "worker" in str(refusal.value)
    assert _names(tmp_path) == ["notes.md"]
    assert notes.read_text() == "kept"
    assert (notes.stat().st_mtime_ns, notes.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]
