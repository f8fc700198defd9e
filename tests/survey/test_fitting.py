"""Fitting: findings get as short as they must, and say what was cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.jsonable import dump_readable
from sessiontree.survey.finding import ComplexFunction, GroupFindings, LongFunction, Problem, Totals
from sessiontree.survey.fitting import fitted
from sessiontree.survey.notes import Note
from sessiontree.survey.prints import FilePrints, prints_of

Fit = Callable[[GroupFindings, int], GroupFindings]


def prints(number: int, lines: int) -> FilePrints:
    """Return the prints of a file with so many lines."""
    text = [f"call_{number}_{line}(value)" for line in range(lines)]
    found = prints_of(f"a/{number:03}.py", b"", text, ())
    assert found is not None
    return found


def findings(
    notes: int, problems: int, packages: int, functions: int, files: Sequence[int] = ()
) -> GroupFindings:
    """Return findings with lists of the given lengths, and the prints of files of the given lengths."""
    return GroupFindings(
        files=3,
        folders={"a": Totals(files=3, lines=90)},
        largest_functions=tuple(
            LongFunction(path="a/b.py", line=line, name="f", lines=99 - line)
            for line in range(1, functions + 1)
        ),
        notes=tuple(Note("a/b.py", line, "TODO " + "x" * 50) for line in range(1, notes + 1)),
        notes_dropped=2,
        most_complex=tuple(
            ComplexFunction(path="a/b.py", line=line, name="f", complexity=99 - line, approximate=False)
            for line in range(1, functions + 1)
        ),
        folder_imports={"a": {f"p{number:03}": number + 1 for number in range(packages)}} if packages else {},
        prints=tuple(prints(number, lines) for number, lines in enumerate(files)),
        imports={f"p{number:03}": number + 1 for number in range(packages)},
        problems=tuple(Problem(path=f"{number:03}", text="gone") for number in range(problems)),
    )


def fits(fit: Fit, given_findings: GroupFindings, max_chars: int) -> None:
    """The text is short enough, totals stay, and cut and kept together are what there was."""
    cut = fit(given_findings, max_chars)
    assert len(dump_readable(cut.model_dump(mode="json"))) <= max_chars
    assert (cut.files, cut.folders, cut.languages) == (
        given_findings.files,
        given_findings.folders,
        given_findings.languages,
    )
    assert cut.notes == given_findings.notes[: len(cut.notes)]
    assert cut.problems == given_findings.problems[: len(cut.problems)]
    for name in ("notes", "problems"):
        assert len(getattr(cut, name)) + getattr(cut, f"{name}_dropped") == (
            len(getattr(given_findings, name)) + getattr(given_findings, f"{name}_dropped")
        )
    assert sum(cut.imports.values()) + cut.imports_dropped == sum(given_findings.imports.values())
    kept = [count for found in cut.folder_imports.values() for count in found.values()]
    whole = [count for found in given_findings.folder_imports.values() for count in found.values()]
    assert sum(kept) + cut.folder_imports_dropped == sum(whole)
    assert sorted(kept) == sorted(whole)[len(whole) - len(kept) :]
    assert len(cut.prints) + cut.prints_dropped == len(given_findings.prints)
    before = {one.path: one for one in given_findings.prints}
    assert all(one == before[one.path].thinned(one.window) for one in cut.prints)
    assert [one.path for one in cut.prints] == sorted(one.path for one in cut.prints)
    assert not cut.imports or min(cut.imports.values()) > len(given_findings.imports) - len(cut.imports)


CASES = st.tuples(
    st.builds(
        findings,
        st.integers(0, 80),
        st.integers(0, 60),
        st.integers(0, 80),
        st.integers(0, 25),
        st.lists(st.integers(8, 400), max_size=6),
    ),
    st.integers(900, 14_000),
)


@given(CASES)
def test_findings_fit_any_length_and_count_what_was_cut(case: tuple[GroupFindings, int]) -> None:
    """A model gets whole JSON, never a cut one, and knows what it does not see."""
    fits(fitted, *case)


def test_a_cut_that_is_not_counted_is_found_out() -> None:
    """The property kills a fitting that forgets to count."""

    def silent(given_findings: GroupFindings, max_chars: int) -> GroupFindings:
        return fitted(given_findings, max_chars).model_copy(update={"notes_dropped": 2})

    @settings(max_examples=500, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(CASES)
    def planted(case: tuple[GroupFindings, int]) -> None:
        fits(silent, *case)

    with pytest.raises(AssertionError):
        planted()


def test_prints_are_thinned_before_anything_else_is_cut() -> None:
    """While half of the length is left to prints, notes and problems stay whole."""
    whole = findings(20, 20, 20, 10, [3_000, 2_000, 1_000, 100])
    rest = len(dump_readable(whole.model_copy(update={"prints": ()}).model_dump(mode="json")))
    cut = fitted(whole, 2 * rest)
    assert cut.model_copy(update={"prints": ()}) == whole.model_copy(update={"prints": ()})
    assert cut.prints[0].window > whole.prints[0].window
    assert len({one.window for one in cut.prints}) == 1
    assert 0 < sum(len(one.prints) for one in cut.prints) < sum(len(one.prints) for one in whole.prints)


def test_prints_of_the_shortest_files_go_first() -> None:
    """Where even one print each is too much, the longest files keep theirs."""
    lengths = [50, 400, 60, 300, 70, 80, 90, 200, 40, 30, 20, 10]
    cut = fitted(findings(0, 0, 0, 0, lengths), 900)
    kept = [int(one.path[2:5]) for one in cut.prints]
    assert 0 < len(kept) < len(lengths)
    assert sorted(lengths[number] for number in kept) == sorted(lengths)[-len(kept) :]
    assert cut.prints_dropped == len(lengths) - len(kept)


def test_what_fits_is_not_touched() -> None:
    """No bound, no cut."""
    whole = findings(5, 5, 5, 5)
    assert fitted(whole, 40_000) is whole


def test_totals_alone_may_be_longer_than_the_bound() -> None:
    """Where nothing is left to cut the lists are empty and the numbers stay."""
    cut = fitted(findings(5, 5, 5, 5), 200)
    assert (cut.notes, cut.problems, cut.imports, cut.largest_functions) == ((), (), {}, ())
    assert cut.totals.lines == 90
