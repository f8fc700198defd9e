"""Plan: every file is in exactly one group, and pages are short enough for a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.contracts.tools.agent import AgentConfig
from sessiontree.survey.source.checkout import SurveyFile
from sessiontree.survey.tools import GROUP_BYTES, GROUP_FILES, plan, survey_plan
from sessiontree.testing.context import call_tool, make_context

MakeTree = Callable[[Mapping[str, str | bytes]], object]
FILES = st.lists(
    st.builds(SurveyFile, st.text("ab/", min_size=1, max_size=9), st.integers(0, 10_000_000)),
    max_size=300,
    unique_by=lambda file: file.path,
)


@given(FILES, st.randoms(use_true_random=False))
def test_plan_holds_every_file_once(files: list[SurveyFile], chance: Any) -> None:
    """Whatever the files and their order: none is lost, none is in two groups, no group is too large."""
    planned = plan(files, 400)
    paths = [path for groups in planned.values() for group in groups for path in group]
    assert sorted(paths) == sorted(file.path for file in files)
    sizes = {file.path: min(file.size, 2_000_000) for file in files}
    for groups in planned.values():
        for group in groups:
            assert group == sorted(group)
            assert len(group) <= GROUP_FILES
            assert len(group) == 1 or len(json.dumps(group)) <= 400
            assert len(group) == 1 or sum(sizes[path] for path in group) <= GROUP_BYTES
    shuffled = list(files)
    chance.shuffle(shuffled)
    assert plan(shuffled, 400) == planned


async def pages(root: Path, max_chars: int, **arguments: Any) -> list[Any]:
    """Return all pages of a plan."""
    found: list[Any] = []
    after: str | None = None
    while not found or after is not None:
        more = {} if after is None else {"after": after}
        ctx = make_context(root, config=AgentConfig(max_result_chars=max_chars))
        found.append((await call_tool(survey_plan, ctx, **arguments, **more)).output)
        after = found[-1]["next"]
    return found


@pytest.mark.parametrize(("max_chars", "groups"), [(400, 50), (40_000, 21)])
async def test_survey_plan_pages_hold_everything(
    make_tree: MakeTree, tmp_path: Path, max_chars: int, groups: int
) -> None:
    """However short a page may be: folders and groups come in order, and each file once."""
    files = {f"folder{number:02}/file{index:03}.py": "" for number in range(20) for index in range(3)}
    make_tree(files | {f"folder00/more{index:03}.py": "" for index in range(150)})
    found = await pages(tmp_path, max_chars)
    assert [name for page in found for name in page["folders"]] == [
        f"folder{number:02}" for number in range(20)
    ]
    assert (found[0]["files"], found[0]["all_folders"], found[0]["all_groups"]) == (210, 20, groups)
    assert found[0]["folders"]["folder00"] == 153
    shown = await pages(tmp_path, max_chars, folder="folder00")
    paths = [path for page in shown for group in page["groups"] for path in group]
    assert paths == sorted(path for path in paths if path.startswith("folder00/"))
    assert len(paths) == 153


async def test_survey_plan_of_a_missing_folder_is_empty(make_tree: MakeTree, tmp_path: Path) -> None:
    """A folder that is gone has no groups."""
    make_tree({"a.py": ""})
    assert (await pages(tmp_path, 4_000, folder="gone"))[0]["groups"] == []
