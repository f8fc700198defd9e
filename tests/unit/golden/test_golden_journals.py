"""The golden journals: this release reads each, means by it what was meant, and resumes its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sessiontree import FunctionModel, SessionStatus, SessionTree
from sessiontree.contracts.facts.session_facts import CallIntended, CallResolved
from sessiontree.contracts.recorded.codec import list_current_versions
from sessiontree.contracts.values.jsonable import compute_digest, dump_json
from sessiontree.journal.export import load_export
from sessiontree.journal.record import Packed
from tests.behaviour.fact_fixtures import facts_of
from tests.unit.golden.replay_fixtures import summary_of
from tests.unit.golden.scenario_fixtures import GOLDEN, HERE, TOOLS, GoldenModel
from tests.unit.runtime.runtime_fakes import Chunks, write_prefix

JOURNALS = sorted(HERE.glob("*.ndjson"))
WAITS_S = 60.0


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_golden_journal_replays_to_what_was_recorded(path: Path) -> None:
    """A fact never changes its meaning: today's evolve gives the state of the day it was written."""
    recorded = json.loads(path.with_suffix(".json").read_text())
    with path.open() as lines:
        replayed = json.loads(dump_json(summary_of(lines)))
    assert replayed == recorded


def test_this_release_has_a_golden_journal() -> None:
    """No release goes out without one."""
    assert GOLDEN in JOURNALS


def test_golden_journal_holds_most_kinds_of_fact() -> None:
    """The scenario is worth replaying: it leaves facts of at least forty kinds, all known here."""
    kinds = set(json.loads(GOLDEN.with_suffix(".json").read_text())["kinds"])
    assert kinds <= set(list_current_versions())
    assert len(kinds) >= 40, sorted(kinds)


def test_altered_fact_is_noticed() -> None:
    """The comparison can fail: one changed letter is either refused or replays to something else."""
    altered = GOLDEN.read_text().replace("climbed", "Climbed", 1)
    assert altered != GOLDEN.read_text()
    with pytest.raises(AssertionError):
        summary_of(altered.splitlines(keepends=True))


def checked_calls(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every checked call within a JSON value."""
    if isinstance(value, dict):
        if value.get("kind") == "checked_call":
            yield value
        for member in value.values():
            yield from checked_calls(member)
    elif isinstance(value, list):
        for member in value:
            yield from checked_calls(member)


async def put(state_dir: Path, workspace: Path) -> str:
    """Write the golden journal to a state directory, as of a tree of this workspace; return the tree's id.

    Digests of calls are bound to the workspace, so they are made again.
    """
    with GOLDEN.open() as lines:
        export = load_export(lines)
    assert export.manifest is not None
    row0: dict[str, Any] = dict(export.manifest.row0)
    changes = {str(row0["workspace"]): str(workspace)}
    for record in export.records:
        for call in checked_calls(record.to_json()):
            if call["digest"]:
                changes[call["digest"]] = compute_digest(call["tool"], call["arguments"], str(workspace))

    def moved(text: str) -> str:
        for old, new in changes.items():
            text = text.replace(old, new)
        return text

    chunks: list[Chunks] = [
        [(each.session, [Packed(each.cause, each.at_ms, moved(each.text))])] for each in export.records
    ]
    await write_prefix(state_dir, export.manifest.tree_id, json.loads(moved(json.dumps(row0))), chunks)
    return export.manifest.tree_id


async def test_golden_journal_resumes_and_its_tree_ends(tmp_path: Path) -> None:
    """What waits for a person and for the program is answered, runs once, and every session ends."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    tree_id = await put(tmp_path / "state", workspace)
    tree = await SessionTree.resume(
        tree_id,
        model=FunctionModel(GoldenModel(), "golden"),
        tools=TOOLS,
        state_dir=tmp_path / "state",
        backend="local",
    )
    async with tree, asyncio.timeout(WAITS_S):
        (waiting,) = tree.approvals.pending()
        assert waiting.request.arguments == {"target": "moon"}
        (question,) = tree.client_calls.pending()
        assert question.arguments == {"text": "which way?"}
        await question.answer("north")
        await waiting.approve()
        flown, asked = waiting.request.session_id, question.session_id
        results = {name: await tree.session(name).result() for name in (flown, asked)}
        assert {each.status for each in results.values()} == {SessionStatus.COMPLETED}
        assert {each.summary for each in results.values()} == {"flown", "asked"}
        intended = (await facts_of(tree, CallIntended, flown))[-1]
        resolved = [each for each in await facts_of(tree, CallResolved, flown) if each.outcome == "ok"]
        assert [each.key for each in resolved] == [intended.call.key]
        assert await tree.main.send("over") == "heard over"
        await tree.cancel("the fork is over")
        assert tree.main.status().status is SessionStatus.CANCELLED
