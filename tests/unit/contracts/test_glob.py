"""What a glob over a name or a value means, compared with the slow way and in three spellings."""

from __future__ import annotations

import time
from collections.abc import Callable
from fnmatch import fnmatchcase

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.errors import ConfigError
from sessiontree.contracts.recorded.approvals import Rule
from sessiontree.contracts.values.glob import Glob
from sessiontree.contracts.values.jsonable import JsonValue

LETTERS = "ab-]![^\\\\*?/\n"
Part = tuple[str, str]
"""``("text", letter)``, ``("any", "")``, ``("one", "")``, ``("of", letters)`` or ``("other", letters)``."""
SETS = st.text(st.sampled_from(LETTERS), min_size=1, max_size=3)
PARTS: st.SearchStrategy[Part] = st.one_of(
    st.sampled_from(LETTERS).map(lambda letter: ("text", letter)),
    st.just(("any", "")),
    st.just(("one", "")),
    SETS.map(lambda letters: ("of", letters)),
    SETS.map(lambda letters: ("other", letters)),
)
GLOBS = st.lists(PARTS, max_size=5)
TEXTS = st.text(st.sampled_from(LETTERS), max_size=6)
Decide = Callable[[str, str], bool]


def expected(parts: list[Part], text: str) -> bool:
    """Say it the slow way: try every length of every star."""
    if not parts:
        return not text
    (kind, letters), rest = parts[0], parts[1:]
    if kind == "any":
        return any(expected(rest, text[at:]) for at in range(len(text) + 1))
    if not text:
        return False
    fits = {
        "text": text[0] == letters,
        "one": True,
        "of": text[0] in letters,
        "other": text[0] not in letters,
    }[kind]
    return fits and expected(rest, text[1:])


def spelled(parts: list[Part], way: int) -> str:
    """Write a glob in one of three ways; each escapes what it must, and the last one everything."""
    return "".join(_spelled(part, way) for part in parts)


def _spelled(part: Part, way: int) -> str:
    kind, letters = part
    if kind in {"any", "one"}:
        return {"any": "*", "one": "?"}[kind] if way < 2 or kind == "one" else "**"
    escaped = "".join(f"\\{letter}" for letter in letters)
    if kind == "text":
        return [escaped if letters in "*?[\\!" else letters, f"[{escaped}]", escaped][way]
    negated = ["!", "^", "!"][way] if kind == "other" else ""
    if way == 2:
        return f"[{negated}{escaped}]"
    # A bracket is first and a hyphen last, and then neither needs a backslash.
    first = "]" * ("]" in letters)
    last = "-" * ("-" in letters)
    inner = "".join(f"\\{each}" if each in "\\^![" else each for each in letters if each not in "]-")
    return f"[{negated}{first}{inner}{last}]"


def decided(glob: str, text: str) -> bool:
    """Ask a rule whether it means a call."""
    rule = Rule(tool="deploy", where={"/target": glob}, answer="approve")
    return rule.matches("deploy", {"target": text, "note": "staging"})


def agrees_with_the_slow_way(decide: Decide) -> None:
    """A glob decides the same however it is spelled, and as the slow way does."""

    @settings(max_examples=600, database=None, derandomize=True, phases=[Phase.generate])
    @given(GLOBS, TEXTS)
    def check(parts: list[Part], text: str) -> None:
        wanted = expected(parts, text)
        for way in range(3):
            assert decide(spelled(parts, way), text) == wanted, spelled(parts, way)

    check()


@pytest.mark.slow
@pytest.mark.covers("POL13")
def test_rule_written_three_ways_decides_the_same() -> None:
    """Spelling changes nothing."""
    agrees_with_the_slow_way(decided)


def of_python(glob: str, text: str) -> bool:
    """Bug: Python's own globs, where ``[^`` and a backslash mean something else."""
    return fnmatchcase(text, glob)


def caret_is_a_letter(glob: str, text: str) -> bool:
    """Bug: only ``[!`` negates."""
    return decided(glob.replace("[^", "[\\^"), text)


def only_the_beginning(glob: str, text: str) -> bool:
    """Bug: the end of a text may be anything."""
    return decided(glob, text) or any(decided(glob, text[:end]) for end in range(len(text)))


@pytest.mark.parametrize("bug", [of_python, caret_is_a_letter, only_the_beginning])
def test_planted_bug_is_found(bug: Decide) -> None:
    """The property fails on each broken variant."""
    with pytest.raises(AssertionError):
        agrees_with_the_slow_way(bug)


@pytest.mark.parametrize(
    "pattern", ["*a" * 60 + "b", "*" + "a" * 500 + "b*", "*?a[ab]" * 40 + "c", "*" * 1000 + "b"]
)
def test_no_glob_is_slow(pattern: str) -> None:
    """A million letters that almost fit take no time to speak of."""
    glob, text = Glob(pattern), "a" * 1_000_000
    began = time.process_time()
    assert not glob.fits(text)
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"where": {"target": "prod*"}}, "begins with a slash; did you mean '/target'"),
        ({"where": {"a/b": "x"}}, "'/a/b'"),
        ({"where": {"#/a": "x"}}, "not a JSON pointer"),
        ({"where": {"/a~2": "x"}}, "~0 for a tilde"),
        ({"where": {"/a~": "x"}}, "~0 for a tilde"),
        ({"where": {"/a": "!x"}}, "opposite"),
        ({"where": {"/a": "x\\"}}, "backslash"),
        ({"where": {"/a": "[z-a]"}}, "fits nothing"),
        ({"where": {"/a": "[[:Lower:]]"}}, "no class"),
        ({"tool": "!exec"}, "opposite"),
    ],
)
@pytest.mark.covers("POL13")
def test_rule_that_can_mean_something_else_is_refused(rule: dict[str, object], words: str) -> None:
    """The error is raised where the rule is made."""
    with pytest.raises(ConfigError, match="Rule: ") as error:
        Rule(**rule, answer="deny")  # type: ignore[arg-type]
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("pointer", "fits"),
    [
        ("", True),
        ("/a/0", True),
        ("/a/1/b~1c/~0", True),
        ("/", True),
        ("/a/01", False),
        ("/a/-1", False),
        ("/a/+0", False),
        ("/a/٠", False),
        ("/a/0 ", False),
        ("/a/9" + "9" * 5000, False),
        ("/a/-", False),
        ("/A/0", False),
        ("/a/0/", False),
    ],
)
def test_pointer_leads_where_the_standard_says(pointer: str, fits: bool) -> None:
    """Places in lists are ASCII digits alone."""
    arguments: JsonValue = {"a": ["x", {"b/c": {"~": "x"}}], "": "x", "note": "x"}
    assert Rule(where={pointer: "*x*"}).matches("t", arguments) is fits
