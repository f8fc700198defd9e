"""Findings: merging is exact, whatever the grouping and the order."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.survey.definitions import Definition
from sessiontree.survey.finding import (
    LARGEST_KEPT,
    NOTES_KEPT,
    FileFinding,
    GroupFindings,
    Totals,
    top_folder,
)
from sessiontree.survey.joining import findings_of, merge
from sessiontree.survey.notes import Note
from sessiontree.survey.prints import FilePrints
from sessiontree.survey.spread import Spread

Merge = Callable[[GroupFindings, GroupFindings], GroupFindings]


@st.composite
def file_findings(draw: st.DrawFn, path: str) -> FileFinding:
    """Draw a finding whose numbers agree with each other."""
    if draw(st.integers(0, 9)) == 0:
        return FileFinding(path=path, kind="unread", language="", bytes=0, problem="gone")
    code, comment, blank = draw(st.tuples(*[st.integers(0, 9)] * 3))
    starts = draw(st.lists(st.integers(1, 20), max_size=4))
    definitions = tuple(
        Definition("function", f"f{line % 3}", line, line + line % 4, line % 6) for line in sorted(starts)
    )
    return FileFinding(
        path=path,
        kind="text",
        language=draw(st.sampled_from(["Python", "C", "Rust"])),
        bytes=draw(st.integers(0, 99)),
        lines=code + comment + blank,
        code=code,
        comment=comment,
        blank=blank,
        functions=len(definitions),
        definitions=definitions,
        notes=tuple(Note(path, line, "TODO") for line in draw(st.sets(st.integers(1, 3), max_size=2))),
        notes_dropped=draw(st.integers(0, 2)),
        imports=tuple(draw(st.lists(st.sampled_from(["os", "a.b", "a.c", ".d"]), unique=True, max_size=3))),
        imports_from=tuple(sorted(draw(st.sets(st.sampled_from(["a", "b/c", "d"]), max_size=2)))),
        is_parsed=draw(st.booleans()),
        prints=draw(st.none() | st.just(FilePrints(path=path, prints="A" * 16))),
        problem=draw(st.sampled_from(["", "", "odd"])),
    )


@st.composite
def trees(draw: st.DrawFn) -> list[FileFinding]:
    """Draw the findings of distinct files in a few folders."""
    paths = draw(
        st.lists(st.sampled_from([f"{d}{n}.x" for d in ("", "a/", "b/c/") for n in range(6)]), unique=True)
    )
    return [draw(file_findings(path)) for path in paths]


def moved(file: FileFinding, path: str) -> FileFinding:
    """Return the finding of the same file elsewhere."""
    prints = file.prints and file.prints.model_copy(update={"path": path})
    return file.model_copy(update={"path": path, "prints": prints})


GROUPS = st.lists(trees(), min_size=3, max_size=3).map(
    # the same file must not be in two groups
    lambda groups: [
        findings_of(moved(file, f"{index}/{file.path}") for file in group)
        for index, group in enumerate(groups)
    ]
)


def order_does_not_matter(join: Merge, groups: list[GroupFindings]) -> None:
    """Joining is associative and commutative, and nothing joined to a group changes nothing."""
    a, b, c = groups
    assert join(a, b) == join(b, a)
    assert join(join(a, b), c) == join(a, join(b, c))
    assert join(a, GroupFindings()) == a


def grouping_does_not_matter(join: Merge, files: list[FileFinding], cut: int) -> None:
    """Two groups' findings joined are the findings of all their files."""
    assert join(findings_of(files[:cut]), findings_of(files[cut:])) == findings_of(files)


@pytest.mark.slow
@given(GROUPS)
def test_groups_may_come_back_in_any_order(groups: list[GroupFindings]) -> None:
    """Branches end when they end: the report is the same."""
    order_does_not_matter(merge, groups)


@pytest.mark.slow
@given(trees(), st.integers(0, 20))
def test_files_may_be_shared_out_in_any_way(files: list[FileFinding], cut: int) -> None:
    """A plan with other bounds gives the same report."""
    grouping_does_not_matter(merge, files, cut)


def keeps_the_left(a: GroupFindings, b: GroupFindings) -> GroupFindings:
    """Merge totals, but where both know a folder keep what the left one says."""
    return merge(a, b).model_copy(update={"folders": {**b.folders, **a.folders}})


def appends(a: GroupFindings, b: GroupFindings) -> GroupFindings:
    """Merge, but leave notes in the order groups came."""
    return merge(a, b).model_copy(update={"notes": (*a.notes, *b.notes)})


def forgets(a: GroupFindings, b: GroupFindings) -> GroupFindings:
    """Merge, but count only the left one's dropped notes."""
    return merge(a, b).model_copy(update={"notes_dropped": a.notes_dropped})


def overwrites(a: GroupFindings, b: GroupFindings) -> GroupFindings:
    """Merge, but where both know a folder's imports keep what the right one says."""
    return merge(a, b).model_copy(update={"folder_imports": {**a.folder_imports, **b.folder_imports}})


def keeps_one_spread(a: GroupFindings, b: GroupFindings) -> GroupFindings:
    """Merge, but where both know how complex a folder is keep what the left one says."""
    return merge(a, b).model_copy(update={"complexity": {**b.complexity, **a.complexity}})


@pytest.mark.parametrize("broken", [appends, forgets])
def test_a_merge_that_depends_on_order_is_found_out(broken: Merge) -> None:
    """The property kills appending and forgetting."""

    @settings(max_examples=2_000, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(GROUPS)
    def planted(groups: list[GroupFindings]) -> None:
        order_does_not_matter(broken, groups)

    with pytest.raises(AssertionError):
        planted()


@pytest.mark.slow
@pytest.mark.parametrize("broken", [keeps_the_left, forgets, overwrites, keeps_one_spread])
def test_a_merge_that_loses_amounts_is_found_out(broken: Merge) -> None:
    """The property kills a merge that overwrites a shared folder or drops a count."""

    @settings(max_examples=2_000, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(trees(), st.integers(0, 20))
    def planted(files: list[FileFinding], cut: int) -> None:
        grouping_does_not_matter(broken, files, cut)

    with pytest.raises(AssertionError):
        planted()


@given(trees())
def test_totals_agree_with_the_files(files: list[FileFinding]) -> None:
    """Folders together are languages and unread files together, and both are the sum over all files."""
    found = findings_of(files)
    by_language = Totals()
    for part in found.languages.values():
        by_language += part
    assert found.files == len(files) == found.totals.files == by_language.files + found.unread
    for name in ("bytes", "lines", "code", "comment", "blank", "functions", "classes"):
        expected = sum(getattr(file, name) for file in files)
        assert getattr(found.totals, name) == getattr(by_language, name) == expected
    assert GroupFindings.model_validate_json(found.model_dump_json()) == found


def test_only_the_longest_functions_and_first_notes_stay_with_the_rest_counted() -> None:
    """Bounded lists follow one order, ties by path and line, in groups and in merges alike."""
    files = [
        FileFinding(
            path=f"p{number:03}.py",
            kind="text",
            language="Python",
            bytes=1,
            definitions=(Definition("function", "f", 1, 1 + number % 40), Definition("class", "A", 1, 900)),
            notes=tuple(Note(f"p{number:03}.py", line, "TODO") for line in (1, 2, 3, 4)),
        )
        for number in range(100)
    ]
    whole = findings_of(files)
    halves = merge(findings_of(files[50:]), findings_of(files[:50]))
    assert whole == halves
    assert len(whole.largest_functions) == LARGEST_KEPT
    assert [(one.lines, one.path) for one in whole.largest_functions[:3]] == [
        (40, "p039.py"),
        (40, "p079.py"),
        (39, "p038.py"),
    ]
    assert len(whole.notes) == NOTES_KEPT
    assert whole.notes_dropped == 100
    assert [note.citation for note in whole.notes[:5]] == [
        *(f"p000.py#L{line}" for line in (1, 2, 3, 4)),
        "p001.py#L1",
    ]


def test_imports_count_files_per_package() -> None:
    """A file that imports three modules of a package counts once; relative imports do not count."""
    files = [
        FileFinding(path="a.py", kind="text", language="Python", bytes=1, imports=("os", "os.path", ".x")),
        FileFinding(path="b.py", kind="text", language="Python", bytes=1, imports=("os", "re")),
    ]
    assert findings_of(files).imports == {"os": 2, "re": 1}


def test_folder_imports_count_files_and_spreads_count_functions() -> None:
    """By the folder a file stands in how many import another one; by top folder how complex functions are."""
    files = [
        FileFinding(
            path=f"a/b/{name}.py",
            kind="text",
            language="Python",
            bytes=1,
            definitions=(Definition("function", "f", 1, 2, complexity), Definition("class", "A", 3, 4)),
            is_parsed=name != "z",
            imports_from=("c", "d/e") if name == "x" else ("c",),
        )
        for name, complexity in (("x", 3), ("y", 1), ("z", 7))
    ]
    found = findings_of(files)
    assert found.folder_imports == {"a/b": {"c": 3, "d/e": 1}}
    assert found.complexity == {"a": Spread(counts=(1, 0, 1, 0, 0, 0, 1), maximum=7, approximate=1)}
    assert [(one.path, one.complexity, one.approximate) for one in found.most_complex] == [
        ("a/b/z.py", 7, True),
        ("a/b/x.py", 3, False),
    ]


def test_the_top_folder_is_the_first_part() -> None:
    """Files in the root itself belong to the folder `.`."""
    assert [top_folder(path) for path in ("a", "a/b", "a/b/c", "a//b")] == [".", "a", "a", "a"]
