"""The plan in pages: every file once, however short a page must be."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.agent import AgentConfig
from sessiontree.contracts.context import CallSignals, ToolContext
from sessiontree.contracts.errors import ExecutionError
from sessiontree.contracts.jsonable import dump_readable
from sessiontree.contracts.kinds import SessionKind
from sessiontree.contracts.results import ToolResult
from sessiontree.survey.planning import PAGE_ITEMS, FolderPage, GroupPage, SurveyPlan, SurveyPlanParams
from sessiontree.testing.context import call_tool, make_context

PLAN = SurveyPlan()
MakeTree = Callable[[Mapping[str, str | bytes]], Path]


def context(root: Path, max_result_chars: int = 40_000) -> ToolContext:
    """Return Main's context over a directory."""
    return make_context(root, config=AgentConfig(max_result_chars=max_result_chars))


async def all_folders(ctx: ToolContext, leave_out: tuple[str, ...] = ()) -> list[FolderPage]:
    """Ask for pages until there are no more."""
    pages: list[FolderPage] = []
    while not pages or pages[-1].next is not None:
        after = {"after": pages[-1].next} if pages else {}
        result = await call_tool(PLAN, ctx, leave_out=list(leave_out), **after)
        pages.append(FolderPage.model_validate(result.output))
    return pages


async def all_groups(
    ctx: ToolContext, folder: str, leave_out: tuple[str, ...] = (), tool: SurveyPlan = PLAN
) -> list[GroupPage]:
    """Ask for pages of one folder until there are no more."""
    pages: list[GroupPage] = []
    while not pages or pages[-1].next is not None:
        after = {"after": pages[-1].next} if pages else {}
        result = await call_tool(tool, ctx, folder=folder, leave_out=list(leave_out), **after)
        assert len(dump_readable(result.output)) <= ctx.config.max_result_chars
        pages.append(GroupPage.model_validate(result.output))
    return pages


async def test_folders_come_in_pages_with_the_amounts_of_all(make_tree: MakeTree) -> None:
    """Folders ascend over the pages, each once; what is ignored or no file is told on every page."""
    names = {f"f{number:02}/a.py": "x = 1\n" for number in range(PAGE_ITEMS + 5)}
    root = make_tree({**names, "top.py": "", "SURVEY.md": "old", "node_modules/x.js": ""})
    os.mkfifo(root / "pipe")
    pages = await all_folders(context(root))
    folders = [line.folder for page in pages for line in page.folders]
    assert folders == sorted([".", *(name.partition("/")[0] for name in names)])
    assert len(pages[0].folders) == PAGE_ITEMS
    for page in pages:
        assert (page.files, page.ignored) == (len(names) + 1, 2)
        assert [problem.path for problem in page.problems] == ["pipe"]


async def test_files_left_out_are_in_no_plan(make_tree: MakeTree) -> None:
    """The report's own place is not planned, wherever it is."""
    root = make_tree({"docs/report.md": "x", "docs/other.md": "x", "b.md": "x"})
    (page,) = await all_folders(context(root), ("docs/report.md", "b.md"))
    assert [(line.folder, line.files) for line in page.folders] == [("docs", 1)]
    (groups,) = await all_groups(context(root), "docs", ("docs/report.md",))
    assert groups.groups == (("docs/other.md",),)
    (root_files,) = await all_groups(context(root), ".", ("b.md",))
    assert root_files.groups == ()


async def test_folder_sees_what_the_whole_sees(make_tree: MakeTree) -> None:
    """A folder's own plan leaves out what the plan of everything leaves out, and nothing more."""
    root = make_tree(
        {
            "build/a.py": "",
            "app/build/b.py": "",
            "app/pyproject.toml": "",
            "app/SURVEY.md": "",
            "app/.git/config": "",
            "app/src/c.py": "",
        }
    )
    (page,) = await all_folders(context(root))
    assert [(line.folder, line.files) for line in page.folders] == [("app", 3), ("build", 1)]
    (groups,) = await all_groups(context(root), "app")
    assert groups.groups == (("app/SURVEY.md", "app/pyproject.toml", "app/src/c.py"),)


async def test_folder_that_is_gone_has_no_groups(make_tree: MakeTree) -> None:
    """A folder that vanished meanwhile is planned as empty."""
    (page,) = await all_groups(context(make_tree({"a.py": ""})), "gone")
    assert page.groups == ()


async def test_plan_of_a_stopped_call_ends(make_tree: MakeTree) -> None:
    """A call whose time is over stops at the next directory."""
    ctx = make_context(make_tree({"a/b.py": ""}), signals=CallSignals(0.0))
    with pytest.raises(ExecutionError, match="can't finish the plan"):
        await call_tool(PLAN, ctx)


async def test_session_without_a_reader_has_no_plan(tmp_path: Path) -> None:
    """The tool needs a reader like any other."""
    with pytest.raises(Exception, match="holds no reader"):
        await call_tool(PLAN, make_context(tmp_path, SessionKind.BRANCH, reader=None))


async def pages_hold_every_file_once(
    tool: SurveyPlan, root: Path, names: set[str], max_result_chars: int
) -> None:
    """Pages of any length hold all files of a folder, each once, ascending, and fit the result's length."""
    (root / "folder").mkdir()
    for name in names:
        (root / "folder" / f"{name}.txt").touch()
    pages = await all_groups(context(root, max_result_chars), "folder", tool=tool)
    paths = [path for page in pages for group in page.groups for path in group]
    assert paths == sorted(f"folder/{name}.txt" for name in names)


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    names=st.sets(st.text("abcdé ñ", min_size=1, max_size=40), min_size=1, max_size=150),
    max_result_chars=st.integers(300, 5_000),
)
async def test_pages_hold_every_file_once(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], max_result_chars: int
) -> None:
    """However short a result must be, no file is left out or planned twice."""
    await pages_hold_every_file_once(PLAN, tmp_path_factory.mktemp("pages"), names, max_result_chars)


class Overlapping(SurveyPlan):
    """Begins each page with the file the one before ended with."""

    async def execute(self, params: SurveyPlanParams, ctx: ToolContext) -> ToolResult:
        if params.after is not None:
            params = params.model_copy(update={"after": params.after[:-5]})
        return await super().execute(params, ctx)


async def test_page_property_notices_a_file_planned_twice(tmp_path: Path) -> None:
    """A plan whose pages overlap is found."""
    names = {f"file {number:03}" for number in range(120)}
    with pytest.raises(AssertionError):
        await pages_hold_every_file_once(Overlapping(), tmp_path, names, 3_000)
