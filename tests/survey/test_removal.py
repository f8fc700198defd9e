"""Removing an earlier survey: its report, what it left in memory, and nothing of anybody else's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError
from sessiontree.survey.finding import GroupFindings
from sessiontree.survey.removal import RemoveSurvey
from sessiontree.survey.report import MARKER, ReportMeta, render
from sessiontree.testing.context import call_tool, make_context

MakeTree = Callable[[Mapping[str, str | bytes]], Path]


async def test_only_an_earlier_report_is_removed(make_tree: MakeTree) -> None:
    """A file that begins with our marker goes, and its size is told."""
    report = render(GroupFindings(), ReportMeta("x"))
    root = make_tree({"docs/SURVEY.md": report})
    result = await call_tool(RemoveSurvey(), make_context(root), path="docs/SURVEY.md")
    assert result.output == {"removed": "docs/SURVEY.md", "bytes": len(report), "records": 0}
    assert not (root / "docs" / "SURVEY.md").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("# Mine\n", "not that of a survey report"),
        ("", "not that of a survey report"),
        (f"\n{MARKER}\n", "not that of a survey report"),
        (f"{MARKER} and more\n", "not that of a survey report"),
        (MARKER.replace(" -->", "") + "x" * 500, "not that of a survey report"),
        (None, "does not exist"),
    ],
)
async def test_any_other_file_stays(make_tree: MakeTree, content: str | None, reason: str) -> None:
    """What a person wrote is never removed, whatever it is called."""
    root = make_tree({} if content is None else {"SURVEY.md": content})
    before = sorted(root.iterdir())
    with pytest.raises(ExecutionError, match=reason):
        await call_tool(RemoveSurvey(), make_context(root), path="SURVEY.md")
    assert sorted(root.iterdir()) == before


async def test_links_and_directories_are_not_removed(make_tree: MakeTree) -> None:
    """A link to a report is not a report, and what it leads to stays."""
    root = make_tree({"real.md": render(GroupFindings(), ReportMeta("x")), "SURVEY.md/a": ""})
    (root / "link.md").symlink_to("real.md")
    for path, what in (("link.md", "link"), ("SURVEY.md", "directory")):
        with pytest.raises(ExecutionError, match=f"it is a {what}, not a regular file"):
            await call_tool(RemoveSurvey(), make_context(root), path=path)
    assert (root / "real.md").exists()
    assert (root / "link.md").is_symlink()
