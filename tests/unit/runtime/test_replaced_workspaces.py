"""A workspace that is another directory than before: sessions that begin then see that one."""

from __future__ import annotations

from pathlib import Path

from sessiontree import FunctionModel, ModelRequest, Runtime, SessionTree, script_call
from sessiontree.models.answers import Answer
from tests.behaviour.fact_fixtures import results

NOTE = "note.txt"


def answer(request: ModelRequest) -> Answer:
    """Read the note once."""
    return script_call("read", path=NOTE) if request.turn == 1 else "read"


async def test_session_reads_the_directory_that_is_there_when_it_begins(tmp_path: Path) -> None:
    """Its host may have had the earlier directory open for the session before."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / NOTE).write_text("old")
    async with (
        Runtime(tmp_path / "state", backend="local", slots=1) as runtime,
        SessionTree(workspace, model=FunctionModel(answer), runtime=runtime) as tree,
    ):
        first = await tree.main.spawn("worker", "read it")
        await first.result()
        workspace.rename(tmp_path / "moved")
        workspace.mkdir()
        (workspace / NOTE).write_text("new")
        second = await tree.main.spawn("worker", "read it again")
        await second.result()
        texts = [results(tree, each.session_id)[0].text for each in (first, second)]
    assert "old" in texts[0]
    assert "new" in texts[1]
