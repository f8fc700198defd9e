"""Removing an earlier survey: its report, what it left in memory, and nothing of anybody else's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError, MemoryFailed
from sessiontree.contracts.memory import MemoryScope, NewRecord
from sessiontree.survey.finding import GroupFindings
from sessiontree.survey.mark import MARK, mark_text, surveys_of
from sessiontree.survey.removal import RemoveSurvey
from sessiontree.survey.report import MARKER, ReportMeta, render
from sessiontree.testing.context import call_tool, make_context
from sessiontree.testing.memory import SCOPE, PlainMemory

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


async def with_survey(records: int) -> PlainMemory:
    """Return a memory in which a survey left so many records and its mark."""
    memory = PlainMemory()
    await memory.store([NewRecord(f"record {number}") for number in range(records)], key="a")
    await memory.store([NewRecord(mark_text("x", records, 2), "fact", MARK)], key="b")
    return memory


async def test_records_go_with_the_report(make_tree: MakeTree) -> None:
    """One call removes both; the output says how much of each."""
    root = make_tree({"SURVEY.md": render(GroupFindings(), ReportMeta("x"))})
    memory = await with_survey(3)
    ctx = make_context(root, memory=memory, memory_writer=memory)
    result = await call_tool(RemoveSurvey(), ctx, path="SURVEY.md", trees=[SCOPE.tree_id], records=3)
    assert (result.output or {})["records"] == 4  # type: ignore[index, call-overload]
    assert memory.records == []
    assert not (root / "SURVEY.md").exists()


async def test_records_go_where_the_report_is_gone(make_tree: MakeTree) -> None:
    """Somebody else removed the file: what memory holds of that survey goes all the same."""
    memory = await with_survey(3)
    ctx = make_context(make_tree({}), memory=memory, memory_writer=memory)
    await call_tool(RemoveSurvey(), ctx, path="SURVEY.md", trees=[SCOPE.tree_id])
    assert memory.records == []


async def test_tree_that_is_no_survey_is_not_forgotten(make_tree: MakeTree) -> None:
    """What other trees remember is safe from this tool, and the report stays too."""
    root = make_tree({"SURVEY.md": render(GroupFindings(), ReportMeta("x"))})
    memory = await with_survey(3)
    ctx = make_context(root, memory=memory, memory_writer=memory)
    with pytest.raises(ExecutionError, match="no survey of that name left any"):
        await call_tool(RemoveSurvey(), ctx, path="SURVEY.md", trees=[SCOPE.tree_id, "other"])
    assert len(memory.records) == 4
    assert (root / "SURVEY.md").exists()


async def test_other_file_saves_the_records_too(make_tree: MakeTree) -> None:
    """Everything is checked before anything is removed."""
    memory = await with_survey(3)
    ctx = make_context(make_tree({"SURVEY.md": "# Mine\n"}), memory=memory, memory_writer=memory)
    with pytest.raises(ExecutionError, match="not that of a survey report"):
        await call_tool(RemoveSurvey(), ctx, path="SURVEY.md", trees=[SCOPE.tree_id])
    assert len(memory.records) == 4


async def test_memory_that_fails_saves_the_report(make_tree: MakeTree) -> None:
    """A report that stands says that something is left to do."""
    root = make_tree({"SURVEY.md": render(GroupFindings(), ReportMeta("x"))})
    memory = PlainMemory(failure=MemoryFailed("there", "gone"))
    ctx = make_context(root, memory=memory, memory_writer=memory)
    with pytest.raises(MemoryFailed):
        await call_tool(RemoveSurvey(), ctx, path="SURVEY.md", trees=[SCOPE.tree_id])
    assert (root / "SURVEY.md").exists()


async def test_only_marks_of_surveys_count() -> None:
    """Newest last; another source, another text, or text from outside is no mark."""
    (mark,) = (await with_survey(0)).records
    older = replace(mark, scope=MemoryScope("t0", "main", "default", "/"), created_at_ms=-1)
    others = [
        replace(mark, source="a.py"),
        replace(mark, text="survey of x: many records"),
        replace(mark, trust="foreign"),
    ]
    found = surveys_of([mark, *others, older])
    assert [(one.tree, one.records) for one in found] == [("t0", 0), (SCOPE.tree_id, 0)]
    assert surveys_of(others) == ()
