"""Census: counts join the same way in any order, and lists stay bounded with what was left out counted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.survey.source.census import NOTES_KEPT, Findings, Place, choose_folder, fit_findings, merge
from sessiontree.survey.source.source import collect_findings, read_source
from tests.example_fixtures import examples

NAMES = st.sampled_from(["a.py", "src/b.py", "src/x/c.py", "d.md", "src/x/y/e.go", "package.json"])
TEXTS = st.sampled_from(
    [
        "",
        "x = 1\n",
        "# TODO one\ndef f():\n    if x:\n        return 1\n",
        "# A\n\ntext\n",
        "{",
        "import os, b\n",
    ]
)
FILES = st.lists(st.tuples(NAMES, TEXTS), max_size=8)


def findings(files: list[tuple[str, str]]) -> list[Findings]:
    """Return the findings of each file."""
    return [collect_findings(read_source(path, text.encode(), len(text))) for path, text in files]


@settings(max_examples=examples(60), deadline=None)
@given(FILES, st.randoms(use_true_random=False), st.integers(0, 8))
def test_merge_does_not_depend_on_order_or_grouping(
    files: list[tuple[str, str]], chance: object, cut: int
) -> None:
    """Branches join what Workers joined: the result is that of all files at once."""
    parts = findings(files)
    shuffled = list(parts)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    whole = merge(parts)
    assert merge(shuffled) == whole
    assert merge([merge(parts[:cut]), merge(parts[cut:])]) == whole
    assert whole.totals.files == len(files)
    assert sum(one.files for one in whole.folders.values()) == len(files)


def test_merge_counts_what_it_leaves_out() -> None:
    """The first notes by place are kept, and the others are counted."""
    part = Findings(notes=tuple(Place(path="a", line=line, text="TODO") for line in range(1, NOTES_KEPT)))
    joined = merge([part, part])
    assert len(joined.notes) == NOTES_KEPT
    assert joined.notes_dropped == NOTES_KEPT - 2
    assert joined.notes[0].line == 1


def test_fitted_findings_are_as_long_as_allowed() -> None:
    """Long lists are halved until the text fits; counts stay, and less than the counts is refused."""
    notes = tuple(Place(path="a" * 50, line=line, text="TODO") for line in range(1, 200))
    found = fit_findings(Findings(notes=notes, notes_dropped=1), 4_000)
    assert len(found.model_dump_json()) <= 4_000
    assert len(found.notes) + found.notes_dropped == 200
    with pytest.raises(ValueError, match="do not fit into 10 characters"):
        fit_findings(Findings(), 10)


def test_folder_of_counts_under_two_parts() -> None:
    """Deep files count for the folder of the first two parts."""
    paths = ("a", "x/a", "x/y/a", "x/y/z/a")
    assert [choose_folder(path) for path in paths] == [".", "x", "x/y", "x/y"]
