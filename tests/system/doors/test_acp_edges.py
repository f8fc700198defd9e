"""Semantic edges at an editor's door: a trainer reads which model request caused and fed which other one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from acp import text_block

from sessiontree import FunctionModel, ModelRequest, script_call
from sessiontree.contracts.values.request_names import EDGES_KEY
from tests.system.doors.editor_fixtures import OpenEditor, open_editor

SPAWN = script_call("sessions_spawn", kind="worker", task="look")


def reply(request: ModelRequest) -> Any:
    """Start a child when a person asks for one."""
    return SPAWN if request.messages[-1].text == "start one" else f"heard {len(request.messages)}"


async def edges_after(editor: OpenEditor, session: str, text: str) -> list[tuple[str, str, str]]:
    """Send a prompt; return the edges of its answer by the sessions of their requests."""
    answer = await editor.connection.prompt(session_id=session, prompt=[text_block(text)])
    edges = [] if answer.field_meta is None else answer.field_meta[EDGES_KEY]["edges"]
    names = ("source_request_id", "target_request_id", "type")
    found = [tuple(edge[name].partition(":")[0] for name in names) for edge in edges]
    return sorted((source, target, kind) for source, target, kind in found)


async def test_answer_has_the_edges_that_are_new(tmp_path: Path) -> None:
    """Each once; after a load only those whose requests whoever reads them can have recorded."""
    async with open_editor(tmp_path, FunctionModel(reply)) as editor:
        session = await editor.begin()
        assert await edges_after(editor, session, "start one") == [
            ("main", "main.w1", "subagent_call"),
            ("main.w1", "main", "subagent_return"),
        ]
        assert await edges_after(editor, session, "thanks") == []
    async with open_editor(tmp_path, FunctionModel(reply)) as editor:
        await editor.connection.load_session(session_id=session, cwd=str(editor.workspace))
        assert await edges_after(editor, session, "and again") == []
        assert await edges_after(editor, session, "start one") == [
            ("main", "main.w2", "subagent_call"),
            ("main.w2", "main", "subagent_return"),
        ]
