"""Patterns of ``.gitignore`` files: as Git reads them, and in a bounded time."""

from __future__ import annotations

import random
import subprocess
import time
from pathlib import Path

import pytest

from sessiontree import ExecutionError
from sessiontree.survey.source.ignore_rules import MAX_PATTERN_CHARS, IgnoreRules

HAND_WRITTEN = [
    "a",
    "/a",
    "a/",
    "a/b",
    "*.py",
    "**",
    "**/",
    "/**",
    "a/**",
    "**/b",
    "a/**/b",
    "a/**/**/b",
    "**/a/**/b/**",
    "a**",
    "**a",
    "a**/b",
    "a/b**",
    "*/",
    "*",
    "/*",
    "?",
    "a?",
    "[ab]",
    "[!a]",
    "[^a]",
    "[a-c]",
    "[c-a]",
    "[]-a]",
    "[]]",
    "[!]]",
    "[a",
    "[[:alpha:]]",
    "[[:nope:]]",
    "[[:alpha:]-z]",
    "[[:]",
    "[[:a]",
    "[a-]",
    "[--0]",
    "[\\]]",
    "[\\a-\\c]",
    "a\\",
    "\\a",
    "\\*",
    "\\[a]",
    "a\\ ",
    "a  ",
    "a\\\\ ",
    "\\#x",
    "#x",
    "\\!a",
    "!a",
    "!",
    "/",
    "//",
    "a//b",
    "//a",
    "[a/b]",
    "a[/]b",
    "a?b",
    "a*b",
    "*a*b*",
    "\\/a",
    "a\\/b",
    "a\r",
    " a",
    "é",
    "?é",
    "[é]",
    "a.b",
    "a+",
    "(a|b)",
    "{a,b}",
    "$a",
]
PIECES = [
    "a",
    "b",
    "c",
    "*",
    "**",
    "?",
    "/",
    "/",
    "[ab]",
    "[!a]",
    "[a-b]",
    "\\a",
    "*a",
    "**/",
    "/**/",
    "-",
    "]",
    "[",
]
PATHS = [
    *("a", "b", "c", "ab", "ba", "a/a", "a/b", "b/a", "a/a/b", "a/b/a/b", "b/a/b", "abab/b", "a/c/b", "x.py"),
    *(
        "a/x.py",
        "#x",
        "!a",
        "a*",
        "*",
        "[a]",
        "a]",
        "]",
        "-",
        "a-",
        "\\",
        "a\\",
        "a ",
        " a",
        "é",
        "xé",
        "a.b",
    ),
    *("a+", "axb", "(a|b)", "{a,b}", "$a", "0", "Z", "abcabc/a/b", "["),
]


def is_left_out(rules: IgnoreRules, path: str) -> bool:
    """Return whether a walk leaves a file out: no directory above it is entered that is left out."""
    names = path.split("/")
    above = ("/".join(names[:count]) + "/" for count in range(1, len(names)))
    return any(rules.judge(place) for place in (*above, path))


def check_with_git(root: Path, patterns: list[str]) -> None:
    """Compare with what Git says of each path, with each pattern in a directory of its own."""
    subprocess.run(["git", "init", "-q", root], check=True)
    for number, pattern in enumerate(patterns):
        folder = root / f"p{number}"
        folder.mkdir()
        (folder / ".gitignore").write_bytes(pattern.encode() + b"\n")
    asked = [f"p{number}/{path}" for number in range(len(patterns)) for path in PATHS]
    done = subprocess.run(
        [
            "git",
            "-C",
            root,
            "-c",
            "core.excludesFile=/dev/null",
            "check-ignore",
            "-z",
            "--stdin",
            "--no-index",
        ],
        input="\0".join(asked).encode() + b"\0",
        capture_output=True,
        check=False,
    )
    ignored = set(filter(None, done.stdout.decode().split("\0")))
    read = {number: IgnoreRules("", pattern.encode() + b"\n") for number, pattern in enumerate(patterns)}
    wrong = [
        (patterns[number], path)
        for number, rules in read.items()
        for path in PATHS
        if is_left_out(rules, path) != (f"p{number}/{path}" in ignored)
    ]
    assert wrong == []


def test_patterns_mean_what_git_says(tmp_path: Path) -> None:
    """Each kind of pattern, and many at random."""
    choice = random.Random(7)
    made = ["".join(choice.choices(PIECES, k=choice.randint(1, 6))) for _ in range(250)]
    check_with_git(tmp_path, [*HAND_WRITTEN, *made])


@pytest.mark.long
def test_any_patterns_mean_what_git_says(tmp_path: Path) -> None:
    """Some thousands at random."""
    choice = random.Random()
    check_with_git(tmp_path, ["".join(choice.choices(PIECES, k=choice.randint(1, 9))) for _ in range(5_000)])


def test_later_lines_win_and_marks_at_the_head_are_none() -> None:
    """Also between plain names and globs."""
    rules = IgnoreRules("", b"\xef\xbb\xbfa\n*.py\n!b.py\nc.py\n!*.py\r\n!a/\n")
    assert [rules.judge(path) for path in ("a", "a/", "b.py", "c.py", "d")] == [
        True,
        False,
        False,
        False,
        None,
    ]


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 25 + "b", "a" * 200 + ".py"),
        ("*" * 4_000 + "b", "a" * 250),
        ("**/a/" * 500 + "b", "a/" * 1_000 + "c"),
        ("**/*a*/" * 300 + "b", ("a" * 50 + "/") * 80 + "c"),
        ("*a*a*/" * 200 + "x", ("a" * 200 + "/") * 20 + "y"),
        ("?*" * 2_000 + "b", "a" * 250),
        ("[ab]*" * 1_500 + "c", "ab" * 120),
        ("**/" + "a/" * 1_000 + "b", "a/" * 2_000 + "c"),
        ("a" * (MAX_PATTERN_CHARS + 1), "a"),
    ],
)
def test_no_pattern_backtracks(pattern: str, path: str) -> None:
    """A few milliseconds of this process, where a backtracking matcher takes years."""
    rules = IgnoreRules("", pattern.encode())
    began = time.process_time()
    assert rules.judge(path) is None
    assert time.process_time() - began < 2


def test_patterns_that_take_too_long_are_given_up() -> None:
    """Thousands of them, for thousands of names; it is said once, and then they say nothing."""
    rules = IgnoreRules("", b"".join(b"*%d*x*y\n" % number for number in range(20_000)), limit_s=0.05)
    with pytest.raises(ExecutionError, match=r"given up: comparing them with paths took longer than 0\.05 s"):
        for number in range(20_000):
            assert rules.judge(f"{number}.py") is None
    assert rules.judge("1xy") is None
