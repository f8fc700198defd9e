"""A journal that was written before the values of a call were one is taken up by this release."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sessiontree import SessionStatus, SessionTree
from sessiontree.contracts.session_facts import CallIntended, CallResolved
from sessiontree.journal.export import load_export
from sessiontree.journal.record import Packed
from tests.behaviours.fact_fixtures import facts_of
from tests.golden.open_tree_fixtures import LOG, MODEL, PLACE, TOOLS, WORKSPACE
from tests.runtime.runtime_fakes import Chunks, write_prefix

OLD = Path(__file__).parent / "0.1.0-open.ndjson"
WAITS_S = 60.0


@pytest.fixture
async def old_tree(tmp_path: Path) -> AsyncIterator[str]:
    """A state directory that holds the recorded journal; gives the tree's id."""
    shutil.rmtree(PLACE, ignore_errors=True)
    WORKSPACE.mkdir(parents=True)
    with OLD.open() as lines:
        export = load_export(lines)
    assert export.complete and export.manifest is not None
    chunks: list[Chunks] = [
        [(each.session, [Packed(each.cause, each.at_ms, each.text)])] for each in export.records
    ]
    row0: dict[str, object] = dict(export.manifest.row0)
    await write_prefix(tmp_path, export.manifest.tree_id, row0, chunks)
    yield export.manifest.tree_id
    shutil.rmtree(PLACE, ignore_errors=True)


async def test_older_journal_resumes_and_its_tree_ends(tmp_path: Path, old_tree: str) -> None:
    """What waited for people and for the program is answered, runs once, and every session ends."""
    tree = await SessionTree.resume(old_tree, model=MODEL, tools=TOOLS, state_dir=tmp_path, backend="local")
    async with tree, asyncio.timeout(WAITS_S):
        waiting = {each.request.session_id: each for each in tree.approvals.pending()}
        assert len(waiting) == 2
        (question,) = tree.client_calls.pending()
        assert question.arguments == {"text": "which way?"}
        await question.answer("north")
        for each in waiting.values():
            await each.approve()
        results = {name: await tree.session(name).result() for name in (*waiting, question.session_id)}
        assert {each.status for each in results.values()} == {SessionStatus.COMPLETED}
        assert {each.summary for each in results.values()} == {"climbed", "led", "asked"}
        assert sorted((WORKSPACE / LOG).read_text().split()) == ["north", "own"]
        for name in waiting:
            (intended,) = await facts_of(tree, CallIntended, name)
            assert intended.call.tool == "launch"
            (resolved,) = [each for each in await facts_of(tree, CallResolved, name) if each.outcome == "ok"]
            assert resolved.key == intended.call.key
