"""What stands in the report's place: told without following links, whatever it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sessiontree.contracts.errors import MemoryFailed
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.memory import NewRecord
from sessiontree.contracts.tiers import PermissionTier
from sessiontree.survey.earlier import EarlierSurvey, FindSurvey
from sessiontree.survey.mark import MARK, mark_text
from sessiontree.survey.report import MARKER
from sessiontree.testing.context import call_tool, make_context
from sessiontree.testing.memory import SCOPE, PlainMemory

MakeTree = Callable[[Mapping[str, str | bytes]], Path]


@pytest.mark.parametrize(
    ("path", "exists", "is_report"),
    [
        ("SURVEY.md", True, True),
        ("docs/SURVEY.md", True, True),
        ("notes.md", True, False),
        ("empty.md", True, False),
        ("docs", True, False),
        ("link.md", True, False),
        ("lost.md", True, False),
        ("pipe", True, False),
        ("missing.md", False, False),
        ("nowhere/SURVEY.md", False, False),
    ],
)
async def test_place_is_told_as_it_is(make_tree: MakeTree, path: str, exists: bool, is_report: bool) -> None:
    """Only a regular file that begins as a report does counts as one."""
    report = f"{MARKER}\n# Survey\n"
    root = make_tree(
        {"SURVEY.md": report, "docs/SURVEY.md": report, "notes.md": f"x {MARKER}\n", "empty.md": ""}
    )
    (root / "link.md").symlink_to("SURVEY.md")
    (root / "lost.md").symlink_to("nothing")
    os.mkfifo(root / "pipe")
    result = await call_tool(FindSurvey(), make_context(root), path=path)
    assert result.output == {"path": path, "exists": exists, "is_report": is_report}


def test_looking_is_harmless() -> None:
    """It changes nothing, and only Main, who writes the report, holds it."""
    assert FindSurvey.tier is PermissionTier.READ_ONLY
    assert frozenset({SessionKind.MAIN}) == FindSurvey.kinds


async def test_what_memory_knows_is_told(make_tree: MakeTree) -> None:
    """Surveys that left records are named; a memory that fails is told and costs nothing else."""
    root = make_tree({})
    memory = PlainMemory()
    await memory.store([NewRecord(mark_text("x", 8, 2), "fact", MARK)], key="b")
    result = await call_tool(FindSurvey(), make_context(root, memory=memory), path="SURVEY.md")
    found = EarlierSurvey.model_validate(result.output)
    assert [(one.tree, one.records) for one in found.surveys] == [(SCOPE.tree_id, 8)]
    memory.failure = MemoryFailed("there", "its files are gone")
    result = await call_tool(FindSurvey(), make_context(root, memory=memory), path="SURVEY.md")
    found = EarlierSurvey.model_validate(result.output)
    assert (found.exists, found.surveys) == (False, ())
    assert "its files are gone" in found.memory_problem
