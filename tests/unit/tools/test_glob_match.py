"""Which paths a glob fits."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sessiontree.contracts.values.glob import PathGlob

Matching = Callable[[str, str], bool]

NAMES = st.text(st.sampled_from("ab."), min_size=1, max_size=3).filter(lambda name: name not in {".", ".."})
PARTS = st.one_of(st.sampled_from(["**", "*", "?", "a*", "*.b", "[ab]", "[!a]?"]), NAMES)
PATTERNS = st.lists(PARTS, min_size=2, max_size=5).map("/".join)
PATHS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)


def real_matching(pattern: str, path: str) -> bool:
    """The class under test, in the property's shape."""
    return PathGlob(pattern).fits(path)


def expected(parts: list[str], names: list[str]) -> bool:
    """Say it the slow way: an any-depth part takes no name or one and stays; at the end it takes one."""
    if not parts:
        return not names
    if parts == ["**"]:
        return bool(names)
    if parts[0] == "**":
        return expected(parts[1:], names) or (bool(names) and expected(parts, names[1:]))
    return bool(names) and fnmatchcase(names[0], parts[0]) and expected(parts[1:], names[1:])


def agrees_with_the_slow_way(matching: Matching) -> None:
    """Matching part by part gives what trying everything gives."""

    @settings(max_examples=500, database=None, derandomize=True, phases=[Phase.generate])
    @given(PATTERNS, PATHS)
    def check(pattern: str, path: str) -> None:
        assert matching(pattern, path) == expected(pattern.split("/"), path.split("/"))

    check()


def slash_in_star(pattern: str, path: str) -> bool:
    """Bug: a star crosses directories."""
    return fnmatchcase(path, pattern)


def depth_of_one(pattern: str, path: str) -> bool:
    """Bug: any depth means one directory."""
    return PathGlob("/".join("*" if part == "**" else part for part in pattern.split("/"))).fits(path)


@pytest.mark.slow
def test_matching_agrees_with_trying_everything() -> None:
    """Depth, stars and classes mean the same in every combination."""
    agrees_with_the_slow_way(real_matching)


@pytest.mark.parametrize("bug", [slash_in_star, depth_of_one])
def test_planted_glob_bug_is_found(bug: Matching) -> None:
    """The property fails on each broken variant."""
    with pytest.raises(AssertionError):
        agrees_with_the_slow_way(bug)


@pytest.mark.parametrize(
    ("pattern", "fits", "fails"),
    [
        ("*.md", ["a.md", "x/y/a.md", ".md"], ["a.mdx", "a.md/b", "A.MD"]),
        ("/".join(["**", "*.py"]), ["a.py", "x/a.py", "x/y/a.py"], ["a.pyc"]),
        ("src/**/test_*", ["src/test_a", "src/x/y/test_b.py"], ["test_a", "src/a_test", "x/src/test_a"]),
        ("src/*", ["src/a"], ["src/x/a", "src"]),
        ("src/", ["src/a", "src/x/a"], ["src", "x/src/a"]),
        ("src/**", ["src/a", "src/x/a"], ["src", "srcs/a"]),
        ("**", ["a", "x/y/.z"], []),
        ("./a//b", ["a/b"], ["x/a/b"]),
        ("*.{ts,tsx}", ["a.ts", "x/a.tsx"], ["a.t", "a.{ts,tsx}"]),
        ("{a,b/**}/c", ["a/c", "b/x/c", "b/c"], ["c", "x/a/c"]),
        ("{lone}", ["{lone}"], ["lone"]),
        ("[!a]", ["b", "x/b", "[!a]"], ["a", "bb"]),
        ("[^a]*.log", ["b.log", "x/[^a]*.log"], ["a.log", "a1.log"]),
        ("x/[!ab]", ["x/c", "x/^"], ["x/a", "x/b", "x/"]),
        (r"\[id\]", ["[id]", "x/[id]"], ["i", "d", r"\id"]),
        (r"\*", ["*", r"\*"], ["a", ""]),
        ("[[:lower:]][[:digit:]]", ["a1"], ["A1", "11", "aa", "l]"]),
        ("[![:space:]]x", ["ax"], [" x", "x"]),
        ("[]a]", ["]", "a"], ["b", "[]"]),
        ("[!]a]", ["b"], ["]", "a"]),
        (r"[\]\-a]", ["]", "-", "a"], ["\\", "^"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[^-b]", ["a"], ["-", "b"]),
        ("app/[id]/page.tsx", ["app/[id]/page.tsx", "app/i/page.tsx"], ["app/id/page.tsx"]),
        ("app/[user-id]/*.tsx", ["app/[user-id]/page.tsx", "app/u/x.tsx"], ["app/x/page.tsx"]),
        ("**/[...slug]/*", ["x/[...slug]/a"], ["x/slug/a"]),
        ("app/[[...slug]]/a", ["app/[[...slug]]/a"], ["app/slug/a"]),
        ("a/{b,c}", ["a/b", "a/c", "a/{b,c}"], ["a/{b"]),
        (r"a\/b", ["a/b"], ["b"]),
        (r"\{a,b\}", ["{a,b}"], ["a", "b"]),
        ("[{,}]x", ["{x", ",x", "}x"], ["x"]),
        ("{[,],b}", [",", "b"], ["[", "]"]),
        (r"\!a", ["!a"], ["a", "b"]),
        ("x/!a", ["x/!a"], ["x/b"]),
        ("[z", ["[z"], ["z"]),
        ("a b\n", ["a b\n"], ["a b"]),
    ],
)
def test_known_patterns(pattern: str, fits: list[str], fails: list[str]) -> None:
    """What people write, and what they mean by it."""
    glob = PathGlob(pattern)
    assert [path for path in fits + fails if glob.fits(path)] == fits


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "empty"),
        ("/", "absolute"),
        ("/etc/*", "absolute"),
        ("../*", "upwards"),
        ("a/../b", "upwards"),
        (".", "empty"),
        ("{a,b}" * 7, "more than 64"),
        ("!*.log", "opposite"),
        ("a\\\\\\", "backslash"),
        ("[[:small:]]", "no class"),
    ],
)
def test_bad_pattern_is_refused(pattern: str, words: str) -> None:
    """What can match nothing, or too much, says why."""
    with pytest.raises(ValueError, match=words):
        PathGlob(pattern)


@pytest.mark.covers("REL-L64")
def test_no_pattern_is_slow() -> None:
    """Stars upon stars and depths upon depths end at once; trying everything would not."""
    path = "/".join(["a" * 200] * 60)
    assert not PathGlob("**/" * 60 + "*a" * 60 + "b").fits(path)
    assert PathGlob("**/" * 50 + "*a" * 60).fits(path)


def test_glob_knows_the_names_it_holds() -> None:
    """A directory that is named is meant, one that only fits is not."""
    assert PathGlob(".git/*").holds(".git")
    assert PathGlob("x/{.git,b}/c").holds(".git")
    assert not PathGlob(".g*/**").holds(".git")
