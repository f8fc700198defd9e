"""Brackets: pairs, statements before braces, and preprocessor branches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.survey.brackets import Brackets, brackets_of, without_directives

TEXTS = st.text(alphabet="(){};a\n", max_size=40)


def test_partners_point_both_ways() -> None:
    """Each closed bracket knows its partner, an unclosed one has none."""
    found = brackets_of("a(b){c;{d}")
    assert found.partner == {1: 3, 3: 1, 7: 9, 9: 7}
    assert found.parent == {4: -1, 7: 4}
    assert found.header == {4: 0, 7: 7}
    assert found.rounds == [1]


def test_a_brace_inside_an_argument_does_not_end_the_statement() -> None:
    """Destructured parameters belong to the header of the body after them."""
    text = "x; f({a, b}) {"
    assert brackets_of(text).header[len(text) - 1] == 2


def test_an_unclosed_round_bracket_harms_its_own_block_alone() -> None:
    """After the block's end the next header starts where it should."""
    text = "a { ( ; } b {"
    assert brackets_of(text).header[len(text) - 1] == 9


def pairs_fit(pair: Callable[[str], Brackets], text: str) -> None:
    """Partners are mutual, of the same form, opening before closing, and never cross a pair of braces."""
    found = pair(text)
    braces = [(at, other) for at, other in found.partner.items() if text[at] == "{"]
    for at, other in found.partner.items():
        assert found.partner[other] == at
        assert text[min(at, other)] + text[max(at, other)] in {"()", "{}"}
        first, last = min(at, other), max(at, other)
        for opened, closed in braces:
            assert not (opened < first < closed < last or first < opened < last < closed)
    assert list(found.header) == [at for at, one in enumerate(text) if one == "{"]
    assert all(start <= at for at, start in found.header.items())


@given(TEXTS)
def test_pairs_never_cross(text: str) -> None:
    """Whatever is unbalanced, the pairs that remain are nested."""
    pairs_fit(brackets_of, text)


def test_pairing_by_counting_alone_is_found_out() -> None:
    """The property kills a pairing of round brackets that ignores the braces between them."""

    def careless(text: str) -> Brackets:
        found = brackets_of(text)
        waiting: list[int] = []
        for at, one in enumerate(text):
            if one == "(":
                waiting.append(at)
            elif one == ")" and waiting:
                opened = waiting.pop()
                found.partner[opened] = at
                found.partner[at] = opened
        return found

    @settings(max_examples=2_000, phases=[Phase.generate], report_multiple_bugs=False, database=None)
    @given(TEXTS)
    def planted(text: str) -> None:
        pairs_fit(careless, text)

    with pytest.raises(AssertionError):
        planted()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a {\n}", "a {\n}"),
        ("#if A\nf() {\n#else\ng() {\n#endif\n}\n", "\nf() {\n\n\n\n}\n"),
        ("#if 0\n{\n#else\nx\n#endif\n", "\n\n\nx\n\n"),
        ("#if A\n1\n#elif B\n2\n#elif C\n3\n#endif\n4", "\n1\n\n\n\n\n\n4"),
        ("#if A\n#if B\n1\n#else\n2\n#endif\n#else\n#if C\n3\n#endif\n#endif\n4", "\n\n1\n" + "\n" * 8 + "4"),
        ("#define F(x) { \\\n x \\\n y\nz", "\n\n\nz"),
        ("#endif\n#else\n#elif\na", "\n\n\na"),
        ("#if A\n#if 0\nx\n#else\ny\n", "\n\n\n\ny\n"),
    ],
)
def test_of_each_conditional_one_branch_stays(text: str, expected: str) -> None:
    """Directives leave, lines stay in place, and unbalanced conditionals break nothing."""
    assert without_directives(text) == expected
