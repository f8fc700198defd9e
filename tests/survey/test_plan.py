"""Plan: every file in exactly one group, within bounds, the same in any order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.survey.finding import top_folder
from sessiontree.survey.plan import FolderPlan, SurveyFile, plan

Plan = Callable[..., tuple[FolderPlan, ...]]

FILES = st.dictionaries(
    st.tuples(st.sampled_from(["", "a/", "a/b/", "c d/"]), st.integers(0, 40)).map(lambda p: f"{p[0]}{p[1]}"),
    st.integers(0, 50),
    max_size=40,
).map(lambda sizes: [SurveyFile(path, size) for path, size in sizes.items()])


def shares_out(share: Plan, files: list[SurveyFile], max_files: int, max_bytes: int) -> None:
    """Each file once, in its folder, groups within bounds, paths ascending, none that could be joined."""
    bounds = {"max_files": max_files, "max_bytes": max_bytes, "max_file_bytes": 30}
    folders = share(files, **bounds)
    weights = {file.path: min(file.size, 30) for file in files}
    assert [folder.folder for folder in folders] == sorted({top_folder(file.path) for file in files})
    for folder in folders:
        paths = [path for group in folder.groups for path in group]
        assert paths == sorted(path for path in weights if top_folder(path) == folder.folder)
        assert folder.files == len(paths)
        for group in folder.groups:
            assert 1 <= len(group) <= max_files
            assert len(group) == 1 or sum(weights[path] for path in group) <= max_bytes
        for group, after in zip(folder.groups, folder.groups[1:], strict=False):
            full = len(group) == max_files
            assert full or sum(weights[path] for path in (*group, after[0])) > max_bytes
    assert share(files[::-1], **bounds) == folders


@given(FILES, st.integers(1, 8), st.integers(1, 90))
def test_every_file_is_in_exactly_one_group(files: list[SurveyFile], max_files: int, max_bytes: int) -> None:
    """Nothing is lost, doubled, or put into another folder's group."""
    shares_out(plan, files, max_files, max_bytes)


def loses_the_last(files: list[SurveyFile], **bounds: int) -> tuple[FolderPlan, ...]:
    """Plan, but forget the group that was not full at the end."""
    return tuple(FolderPlan(one.folder, one.groups[:-1] or one.groups) for one in plan(files, **bounds))


def splits_needlessly(files: list[SurveyFile], **bounds: int) -> tuple[FolderPlan, ...]:
    """Plan with groups of one."""
    return plan(files, **{**bounds, "max_files": 1})


def overfills(files: list[SurveyFile], **bounds: int) -> tuple[FolderPlan, ...]:
    """Plan with twice the bytes."""
    return plan(files, **{**bounds, "max_bytes": 2 * bounds["max_bytes"]})


@pytest.mark.parametrize("broken", [loses_the_last, splits_needlessly, overfills])
def test_a_plan_that_loses_splits_or_overfills_is_found_out(broken: Plan) -> None:
    """The property kills each of them."""

    @settings(max_examples=1_000, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(FILES, st.integers(1, 8), st.integers(1, 90))
    def planted(files: list[SurveyFile], max_files: int, max_bytes: int) -> None:
        shares_out(broken, files, max_files, max_bytes)

    with pytest.raises(AssertionError):
        planted()


def test_files_in_the_root_are_a_folder_of_their_own() -> None:
    """They are called `.` and come before every named folder."""
    folders = plan([SurveyFile("b/x", 1), SurveyFile("y", 1), SurveyFile("a/b/z", 1)])
    assert folders == (
        FolderPlan(".", (("y",),)),
        FolderPlan("a", (("a/b/z",),)),
        FolderPlan("b", (("b/x",),)),
    )


def test_a_giant_weighs_no_more_than_what_is_read_of_it() -> None:
    """A sparse file of ten gigabytes does not push its neighbours into groups of their own."""
    files = [SurveyFile("a/0", 10**10), SurveyFile("a/1", 1), SurveyFile("a/2", 10**10)]
    assert plan(files) == (FolderPlan("a", (("a/0", "a/1", "a/2"),)),)


def test_no_files_make_no_plan() -> None:
    """An empty tree has no folders."""
    assert plan([]) == ()


@pytest.mark.parametrize(
    "bounds", [{"max_files": 0}, {"max_files": 501}, {"max_bytes": 0}, {"max_file_bytes": 0}]
)
def test_bounds_out_of_range_are_refused(bounds: dict[str, int]) -> None:
    """A bound the survey tool would not accept is a mistake of the caller."""
    with pytest.raises(ValueError, match="must be"):
        plan([], **bounds)


def test_a_path_given_twice_is_refused() -> None:
    """One file in two groups would be counted twice."""
    with pytest.raises(ValueError, match="two files have the path 'a'"):
        plan([SurveyFile("a", 1), SurveyFile("a", 2)])
