"""Words that deceive the eye are named alongside a request; honest words of any language are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.channels.safe_text import find_deceptive_words, format_approval
from sessiontree.contracts.recorded.approvals import ApprovalRequest

Named = Callable[[str], tuple[str, ...]]
SEARCH = settings(max_examples=200, derandomize=True, database=None, phases=[Phase.generate])
LATIN, CYRILLIC, GREEK = "abceopxyéñß", "асеорхуяжґї", "αβγοερ"
OTHER = "東京漢字かなカナ한글العبתשĦ"
REQUEST = ApprovalRequest("r1", "main", "exec", {"command": "ls"}, "d", "System", 0, "main")


def _words(letters: str) -> st.SearchStrategy[str]:
    return st.text(letters, min_size=1, max_size=8)


MIXED = st.tuples(_words(LATIN), _words(CYRILLIC) | _words(GREEK)).flatmap(
    lambda two: st.permutations([*two[0], *two[1]]).map("".join)
)
HONEST = st.lists(_words(LATIN) | _words(CYRILLIC) | _words(GREEK) | _words(OTHER[:-1])).map(" ".join)


def names_what_deceives(named: Named, mixed: str, honest: str) -> None:
    """Property: REL-L6, a word of two alphabets is named, and no other is."""
    assert named(f"{honest} {mixed}.{honest}") == (mixed,)
    assert named(honest) == ()


@pytest.mark.covers("REL-L6")
@given(mixed=MIXED, honest=HONEST)
def test_mixed_words_are_named(mixed: str, honest: str) -> None:
    """Wherever they stand."""
    names_what_deceives(find_deceptive_words, mixed, honest)


@pytest.mark.covers("REL-L6")
@pytest.mark.parametrize(
    "broken",
    [
        lambda text: (),
        lambda text: tuple(word for word in text.replace(".", " ").split() if not word.isascii()),
        lambda text: find_deceptive_words(text.replace(" ", "")),
    ],
    ids=["nothing", "whatever-is-foreign", "the-text-as-one-word"],
)
def test_property_notices_planted_bugs(broken: Named) -> None:
    """It fails where nothing is named, and where honest words are."""

    def fails(case: tuple[str, str]) -> bool:
        try:
            names_what_deceives(broken, *case)
        except AssertionError:
            return True
        return False

    assert find(st.tuples(MIXED, HONEST), fails, settings=SEARCH)


@pytest.mark.parametrize(
    "word",
    [
        *(
            "ｌｓ",
            "𝐥𝐬",
            "p\u0430ypal",
            "\u0440y",
            "Ɑ\u03b1",
            "\ua4d0pple",
            "p\u0251ypal",
            "\u0261it",
            "\u017ftatus",
        ),
        *("\u2102url", "\u2110nstall", "app\u217ce", "ba\u217dkup", "\U000118a0pple", "\u2d4fs", "gi\u1d1b"),
    ],
)
def test_prompt_warns_of_it(word: str) -> None:
    """On a line of its own, behind the arguments."""
    lines = format_approval(replace(REQUEST, arguments={"command": f"echo {word}"})).splitlines()
    assert lines[-1] == f"  beware:    letters of several alphabets, or unusual ones, in {word}"
    assert "beware" not in format_approval(replace(REQUEST, arguments={"command": "echo déjà привет 東京"}))
