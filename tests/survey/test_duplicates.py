"""Duplicates: a copy that is long enough is always found, a short one never, whatever stands around it."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Sequence
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.survey import prints
from sessiontree.survey.duplicates import Duplicate, Duplicates, Stretch, find_duplicates
from sessiontree.survey.finding import FileFinding
from sessiontree.survey.prints import PRINT_LINES, WINDOW, FilePrints
from sessiontree.survey.source import analyse

Find = Callable[[Iterable[FilePrints], int], Duplicates]

SURE = PRINT_LINES + WINDOW - 1
"""Lines from which a copy is always found."""


def lines_of(random: Random, count: int, comments: bool = True) -> list[str]:
    """Return program text in which no two lines that count are the same."""
    lines: list[str] = []
    for _ in range(count):
        if comments and random.random() < 0.3:
            lines.append(random.choice(["", "    // a note", "}", "  ;"]))
        lines.append(f"  call_{random.getrandbits(60)}(value);")
    return lines


def prints_in(path: str, lines: Sequence[str]) -> FilePrints | None:
    """Return the prints of a file of C."""
    data = "\n".join(lines).encode()
    return analyse(path, data, len(data)).prints


PLANTS = st.tuples(
    st.integers(0, 2**32),
    st.tuples(st.integers(0, 300), st.integers(0, 60), st.integers(0, 60), st.integers(0, 120)),
)
"""A seed, and how many lines stand before and after the copy in one file and in the other."""


def planted(seed: int, around: tuple[int, int, int, int], length: int) -> tuple[list[FilePrints], list[str]]:
    """Return the prints of two files that share so many lines and no other, and the files' texts."""
    random = Random(seed)
    copy = lines_of(random, length, comments=False)
    texts = []
    for before, after in (around[:2], around[2:]):
        texts.append([*lines_of(random, before), *copy, *lines_of(random, after)])
        # what doesn't count may differ within the copy
        for _ in range(3):
            texts[-1].insert(random.randint(before, len(texts[-1])), "  // differs " + str(random.random()))
    found = [prints_in(f"{name}.c", text) for name, text in zip("ab", texts, strict=True)]
    return [one for one in found if one is not None], ["\n".join(text) for text in texts]


def finds_copies(find: Find, seed: int, around: tuple[int, int, int, int], extra: int) -> None:
    """A copy of sure length is found, where it is, and nothing else."""
    files, texts = planted(seed, around, SURE + extra)
    found = find(files, 20)
    assert len(found.stretches) == 1
    (one,) = found.stretches
    assert [place.path for place in one.places] == ["a.c", "b.c"]
    calls = []
    for place, text in zip(one.places, texts, strict=True):
        lines = text.split("\n")[place.first - 1 : place.last]
        calls.append([line for line in lines if "call" in line])
    assert calls[0] == calls[1]
    assert len(calls[0]) >= max(PRINT_LINES, SURE + extra - 2 * (WINDOW - 1))


@given(PLANTS, st.integers(0, 60))
def test_planted_copy_is_always_found(plant: tuple[int, tuple[int, int, int, int]], extra: int) -> None:
    """Wherever it stands, with other comments, and never with a line that differs."""
    finds_copies(find_duplicates, *plant, extra)


def test_copies_that_are_lost_are_found_out() -> None:
    """The property kills a look at every other print."""

    def half_blind(files: Iterable[FilePrints], most: int) -> Duplicates:
        return find_duplicates([one.thinned(4 * WINDOW) for one in files], most)

    @settings(max_examples=200, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(PLANTS)
    def holds(plant: tuple[int, tuple[int, int, int, int]]) -> None:
        finds_copies(half_blind, *plant, 0)

    with pytest.raises(AssertionError):
        holds()


def is_silent_about_short_copies(
    find: Find, seed: int, around: tuple[int, int, int, int], length: int
) -> None:
    """A copy shorter than a print is no duplicate."""
    found = find(planted(seed, around, length)[0], 20)
    assert (found.files, found.stretches, found.lines) == ((), (), 0)


@given(PLANTS, st.integers(0, PRINT_LINES - 1))
def test_copy_shorter_than_a_print_is_never_reported(
    plant: tuple[int, tuple[int, int, int, int]], length: int
) -> None:
    """Seven lines are no finding."""
    is_silent_about_short_copies(find_duplicates, *plant, length)


def test_prints_that_say_too_much_are_found_out() -> None:
    """The property kills prints that are never told apart."""

    def blurred(files: Iterable[FilePrints], most: int) -> Duplicates:
        changed = []
        for file in files:
            data = bytearray(base64.b64decode(file.prints))
            # a print's hash is the first five of its twelve bytes
            for start in range(12, len(data), 12):
                data[start : start + 5] = bytes(5)
            changed.append(FilePrints(path=file.path, prints=base64.b64encode(data).decode()))
        return find_duplicates(changed, most)

    @settings(max_examples=200, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(PLANTS)
    def holds(plant: tuple[int, tuple[int, int, int, int]]) -> None:
        is_silent_about_short_copies(blurred, *plant, 3)

    with pytest.raises(AssertionError):
        holds()


def test_long_file_shares_a_long_stretch_with_a_short_one() -> None:
    """Where a file has more prints than are kept, its larger window decides for both."""
    random = Random(7)
    copy = lines_of(random, 300)
    texts = [[*lines_of(random, 9_000), *copy, *lines_of(random, 9_000)], [*copy, *lines_of(random, 50)]]
    files = [prints_in(f"{name}.c", text) for name, text in zip("ab", texts, strict=True)]
    long, short = files
    assert long is not None
    assert short is not None
    assert len(long.unpacked()) <= prints.MAX_PRINTS < 18_200 // WINDOW
    assert (long.window > WINDOW, short.window) == (True, WINDOW)
    found = find_duplicates([short, long], 20)
    assert PRINT_LINES + long.window - 1 <= 300, "the copy is long enough to be found surely"
    (one,) = found.stretches
    assert [place.path for place in one.places] == ["a.c", "b.c"]


def test_changed_line_ends_a_stretch() -> None:
    """Of a copy with one changed line two stretches are told, none across the change."""
    random = Random(1)
    copy = lines_of(random, 120, comments=False)
    changed = [*copy]
    changed[60] = "  other(value);"
    files = [prints_in("a.c", copy), prints_in("b.c", changed)]
    found = find_duplicates([one for one in files if one is not None], 20)
    assert len(found.stretches) == 2
    for one in found.stretches:
        assert all(place.last <= 60 or place.first > 61 for place in one.places)
        assert one.places[0].first == one.places[1].first


def test_equal_files_are_one_line_and_no_stretch() -> None:
    """Files of the same bytes are told once; a third one that shares a part is told beside one of them."""
    random = Random(2)
    text = lines_of(random, 80)
    other = [*text[:50], *lines_of(random, 30)]
    named = {"z/a.c": text, "a/b.c": text, "m.c": text, "n.c": other}
    files = [prints_in(path, lines) for path, lines in named.items()]
    found = find_duplicates([one for one in files if one is not None], 20)
    (equal,) = found.files
    assert [place.path for place in equal.places] == ["a/b.c", "m.c", "z/a.c"]
    assert equal.saved == 2 * len(text)
    (shared,) = found.stretches
    assert [place.path for place in shared.places] == ["a/b.c", "n.c"]
    assert 0 < found.lines <= 2 * len(text)


def test_what_saves_most_comes_first_and_is_not_told_twice() -> None:
    """A part of a longer stretch that stands in a third file too is told where more than half is new."""
    random = Random(3)
    long, part = lines_of(random, 100, comments=False), lines_of(random, 40, comments=False)
    files = []
    for name in "abc":
        lines = [*lines_of(random, 5), *(long if name != "c" else []), *part, *lines_of(random, 5)]
        files.append(prints_in(f"{name}.c", lines))
    found = find_duplicates([one for one in files if one is not None], 20)
    assert [one.saved for one in found.stretches] == sorted(
        (one.saved for one in found.stretches), reverse=True
    )
    assert [place.path for place in found.stretches[0].places] == ["a.c", "b.c"]
    assert found.stretches[0].lines > 100
    assert len(find_duplicates([one for one in files if one is not None], 1).stretches) == 1


def test_order_of_files_does_not_matter() -> None:
    """The same prints give the same duplicates."""
    random = Random(4)
    shared = [lines_of(random, 30) for _ in range(4)]
    files = []
    for number in range(12):
        lines = [line for part in random.sample(shared, 2) for line in [*part, *lines_of(random, 9)]]
        files.append(prints_in(f"{number:02}.c", lines))
    kept = [one for one in files if one is not None]
    expected = find_duplicates(kept, 20)
    assert expected.stretches
    for _ in range(5):
        random.shuffle(kept)
        assert find_duplicates(kept, 20) == expected


def test_places_within_one_file_do_not_overlap() -> None:
    """A pattern that repeats itself is told as what stands side by side."""
    random = Random(5)
    pattern = lines_of(random, 12, comments=False)
    file = prints_in("a.c", pattern * 6)
    assert file is not None
    for one in find_duplicates([file], 20).stretches:
        for before, after in zip(one.places, one.places[1:], strict=False):
            assert before.last - after.first + 1 <= one.lines / 2


def test_nothing_has_no_duplicates() -> None:
    """No files, no findings."""
    assert find_duplicates([], 20) == Duplicates((), (), 0)
    assert Duplicate((Stretch("a", 1, 9), Stretch("b", 1, 8))).saved == 8


SILENT = [
    ("table.c", [f'  "{number}", {{ {number}, "x" }},' for number in range(60)]),
    ("list.c", [f"  case {number}: return;" if number % 2 else "  break;" for number in range(60)]),
    ("heads.c", [f"#include <a{number}.h>" for number in range(60)]),
    ("notes.c", [f"// the licence, line {number}" for number in range(60)]),
    ("made.c", ["/* Automatically generated, do not edit. */", *(f"int a{n};" for n in range(60))]),
    ("heads.py", ["from a import (", *(f"    b{n}," for n in range(60)), ")"]),
    ("document.py", ["def f():", '    """Say', *(f"    word{n} here" for n in range(60)), '    """']),
    ("data.json", ["[", *(f'"a{n}",' for n in range(60)), '"z"]']),
    ("prose.md", [f"This is sentence {n}." for n in range(60)]),
]


@pytest.mark.parametrize(("name", "lines"), SILENT, ids=[name for name, _ in SILENT])
def test_what_is_no_program_text_is_not_compared(
    survey_text: Callable[[str, str], FileFinding], name: str, lines: list[str]
) -> None:
    """Tables, imports, comments, documents, generated files and data are no duplicates."""
    sign = "#" if name.endswith(".py") else "//"
    texts = {f"{folder}/{name}": "\n".join([*lines, f"{sign} {folder}"]) for folder in "ab"}
    files = [survey_text(path, text).prints for path, text in texts.items()]
    found = find_duplicates([one for one in files if one is not None], 20)
    assert (found.stretches, found.lines) == ((), 0)
