"""Earlier: the removal takes a survey's report and its records, and nothing of anybody else's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from sessiontree.contracts.errors import ExecutionError, MemoryFailed
from sessiontree.contracts.values.memory import MemoryScope, NewRecord
from sessiontree.survey.earlier import MARK, MARKER, find_survey, mark_text, read_surveys, remove_survey
from sessiontree.survey.report import render
from sessiontree.survey.source.census import Findings
from sessiontree.testing.context import SCOPE, PlainMemory, call_tool, make_context
from sessiontree.workspace import WorkspaceReader

MakeRoot = Callable[[Mapping[str, str | bytes]], Path]
MakeTree = Callable[[Mapping[str, str | bytes]], WorkspaceReader]


@pytest.fixture
def make_root(make_tree: MakeTree, tmp_path: Path) -> MakeRoot:
    """Return what writes files and returns the directory."""

    def made(files: Mapping[str, str | bytes]) -> Path:
        make_tree(files)
        return tmp_path

    return made


async def test_removal_takes_an_earlier_report_alone(make_root: MakeRoot) -> None:
    """A file that begins with our marker goes, and its size is reported."""
    report = render(Findings(), "x")
    root = make_root({"docs/SURVEY.md": report})
    result = await call_tool(remove_survey, make_context(root), path="docs/SURVEY.md")
    assert result.output == {"removed": "docs/SURVEY.md", "bytes": len(report), "records": 0}
    assert not (root / "docs" / "SURVEY.md").exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("# Mine\n", "not that of a survey's report"),
        ("", "not that of a survey's report"),
        (f"\n{MARKER}\n", "not that of a survey's report"),
        (f"{MARKER} and more\n", "not that of a survey's report"),
        (MARKER.replace(" -->", "") + "x" * 500, "not that of a survey's report"),
        (None, "does not exist"),
    ],
)
async def test_removal_any_other_file_stays(make_root: MakeRoot, content: str | None, reason: str) -> None:
    """What a person wrote is never removed, whatever it is called."""
    root = make_root({} if content is None else {"SURVEY.md": content})
    before = sorted(root.iterdir())
    with pytest.raises(ExecutionError, match=reason):
        await call_tool(remove_survey, make_context(root), path="SURVEY.md")
    assert sorted(root.iterdir()) == before


async def test_removal_links_and_directories_are_not_removed(make_root: MakeRoot) -> None:
    """A link to a report is not a report, and what it leads to stays."""
    root = make_root({"real.md": render(Findings(), "x"), "SURVEY.md/a": ""})
    (root / "link.md").symlink_to("real.md")
    for path, what in (("link.md", "link"), ("SURVEY.md", "directory")):
        with pytest.raises(ExecutionError, match=f"it is a {what}, not a regular file"):
            await call_tool(remove_survey, make_context(root), path=path)
    assert (root / "real.md").exists()
    assert (root / "link.md").is_symlink()


async def with_survey(records: int) -> PlainMemory:
    """Return a memory in which a survey left so many records and its mark."""
    memory = PlainMemory()
    await memory.store([NewRecord(f"record {number}") for number in range(records)], key="a")
    await memory.store([NewRecord(mark_text("x", records, 2), "fact", MARK)], key="b")
    return memory


async def test_removal_records_go_with_the_report(make_root: MakeRoot) -> None:
    """One call removes both; the output says how much of each."""
    root = make_root({"SURVEY.md": render(Findings(), "x")})
    memory = await with_survey(3)
    ctx = make_context(root, memory=memory, memory_writer=memory)
    result = await call_tool(remove_survey, ctx, path="SURVEY.md", trees=[SCOPE.tree_id], records=3)
    assert (result.output or {})["records"] == 4  # type: ignore[index, call-overload]
    assert memory.records == []
    assert not (root / "SURVEY.md").exists()


async def test_removal_records_go_where_the_report_is_gone(make_root: MakeRoot) -> None:
    """Somebody else removed the file: what memory holds of that survey goes all the same."""
    memory = await with_survey(3)
    ctx = make_context(make_root({}), memory=memory, memory_writer=memory)
    await call_tool(remove_survey, ctx, path="SURVEY.md", trees=[SCOPE.tree_id])
    assert memory.records == []


async def test_removal_tree_that_is_no_survey_is_not_forgotten(make_root: MakeRoot) -> None:
    """What other trees remember is safe from this tool, and the report stays too."""
    root = make_root({"SURVEY.md": render(Findings(), "x")})
    memory = await with_survey(3)
    ctx = make_context(root, memory=memory, memory_writer=memory)
    with pytest.raises(ExecutionError, match="memory has no survey of that name"):
        await call_tool(remove_survey, ctx, path="SURVEY.md", trees=[SCOPE.tree_id, "other"])
    assert len(memory.records) == 4
    assert (root / "SURVEY.md").exists()


async def test_removal_other_file_saves_the_records_too(make_root: MakeRoot) -> None:
    """Everything is checked before anything is removed."""
    memory = await with_survey(3)
    ctx = make_context(make_root({"SURVEY.md": "# Mine\n"}), memory=memory, memory_writer=memory)
    with pytest.raises(ExecutionError, match="not that of a survey's report"):
        await call_tool(remove_survey, ctx, path="SURVEY.md", trees=[SCOPE.tree_id])
    assert len(memory.records) == 4


async def test_removal_memory_that_fails_saves_the_report(make_root: MakeRoot) -> None:
    """A kept report says that something is left to do."""
    root = make_root({"SURVEY.md": render(Findings(), "x")})
    memory = PlainMemory(failure=MemoryFailed("there", "gone"))
    ctx = make_context(root, memory=memory, memory_writer=memory)
    with pytest.raises(MemoryFailed):
        await call_tool(remove_survey, ctx, path="SURVEY.md", trees=[SCOPE.tree_id])
    assert (root / "SURVEY.md").exists()


async def test_surveys_of_counts_marks_alone() -> None:
    """Newest last; another source, another text, or text from outside is no mark."""
    (mark,) = (await with_survey(0)).records
    older = replace(mark, scope=MemoryScope("t0", "main", "default", "/"), created_at_ms=-1)
    others = [
        replace(mark, source="a.py"),
        replace(mark, text="survey of x: many records"),
        replace(mark, trust="foreign"),
    ]
    found = read_surveys([mark, *others, older])
    assert [(one.tree, one.records) for one in found] == [("t0", 1), (SCOPE.tree_id, 1)]
    assert read_surveys(others) == ()


@pytest.mark.parametrize(
    ("content", "exists", "is_report"),
    [(None, False, False), ("# Mine\n", True, False), (f"{MARKER}\nx", True, True)],
)
async def test_find_survey_says_what_is_there(
    make_root: MakeRoot, content: str | None, exists: bool, is_report: bool
) -> None:
    """Whether something is at the path, whether it is a report, and which surveys memory knows."""
    root = make_root({} if content is None else {"SURVEY.md": content})
    ctx = make_context(root, memory=await with_survey(3))
    found = (await call_tool(find_survey, ctx, path="SURVEY.md")).output
    assert isinstance(found, dict)
    assert (found["exists"], found["is_report"]) == (exists, is_report)
    assert found["surveys"] == [{"tree": SCOPE.tree_id, "records": 4}]


async def test_find_survey_goes_on_without_memory(make_root: MakeRoot) -> None:
    """A report can be written where memory can't be asked; the reason is kept."""
    ctx = make_context(make_root({}), memory=PlainMemory(failure=MemoryFailed("there", "gone")))
    found = (await call_tool(find_survey, ctx, path="x/SURVEY.md")).output
    assert isinstance(found, dict)
    assert (found["exists"], found["surveys"]) == (False, [])
    assert "gone" in str(found["memory_problem"])
