"""Shell text: what is read means to the shell what it means here, and the rest is refused."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.policy.commands.command_line import MAX_CALLS, MAX_CHARS, Word, split_calls, split_one_call
from tests.unit.policy.command_strategies import HOSTILE

Read = Callable[[str], tuple[tuple[Word, ...], ...]]
SEARCH = settings(max_examples=300, derandomize=True, database=None, phases=[Phase.generate])
ALPHABET = "ab1 \t'\"\\*?[]~#!=:,.%^@{}()$`|&;<>\n-/+_"
WORDS = st.lists(
    st.text(st.characters(min_codepoint=33, max_codepoint=0x24F, exclude_categories=("Cc", "Cf"))), min_size=1
)


def said(calls: tuple[tuple[Word, ...], ...]) -> list[list[str]]:
    """Return what calls say, without how it was written."""
    return [[word.text for word in words] for words in calls]


def heard_by_bash(texts: list[str], place: Path) -> list[list[str]]:
    """Return the words that bash makes of each text."""
    script = """for text in "$@"; do eval "printf '%s\\0' $text"; printf '\\1'; done"""
    done = subprocess.run(
        ["/bin/bash", "-c", script, "bash", *texts], cwd=place, capture_output=True, check=False, env={}
    )
    return [each.split("\0")[:-1] for each in done.stdout.decode().split("\1")[:-1]]


def agrees_with_bash(read: Read, place: Path) -> int:
    """Property: what is read as one call has the words that bash gives it; returns how many were compared."""
    chance = Random(5)
    texts: list[str] = []
    for _ in range(12_000):
        text = "".join(chance.choices(ALPHABET, k=chance.randint(1, 7)))
        try:
            calls = read(text)
        except ValueError:
            continue
        if len(calls) == 1 and not set(text) & set("|;\n<>&"):
            texts.append(text)
    heard = heard_by_bash(texts, place)
    for text, words in zip(texts, heard, strict=True):
        assert said(read(text)) == [words], text
    return len(texts)


@pytest.mark.covers("REL-L23")
def test_words_are_those_of_bash(tmp_path: Path) -> None:
    """Thousands of random texts; none that is read means something else to bash."""
    assert agrees_with_bash(split_calls, tmp_path) > 1000


@pytest.mark.slow
@pytest.mark.parametrize(
    "broken",
    [
        lambda text: split_calls(text.replace("*", "x")),
        lambda text: split_calls(text.replace("$a", "a")),
        lambda text: split_calls(text.replace("\\", "")),
        lambda text: split_calls(text.replace("~", "")),
    ],
    ids=["globs-pass", "variables-pass", "escapes-vanish", "tildes-vanish"],
)
def test_comparison_with_bash_notices_planted_bugs(broken: Read, tmp_path: Path) -> None:
    """A reader that takes what bash would expand differs from it."""
    with pytest.raises((AssertionError, ValueError)):
        agrees_with_bash(broken, tmp_path)


def keeps_words(read: Read, words: list[str]) -> None:
    """Property: words that were quoted come back, whatever they hold."""
    assert said(read(shlex.join(words))) == [words]


@given(words=WORDS)
def test_quoted_words_come_back(words: list[str]) -> None:
    """Quotes, spaces and signs included."""
    keeps_words(split_calls, words)
    assert split_one_call(shlex.join(words)) == tuple(words)


@pytest.mark.parametrize(
    "broken",
    [
        lambda text: tuple(words[:1] for words in split_calls(text)),
        lambda text: split_calls(text.replace("''", "")),
        lambda text: split_calls(text.replace('"', "")),
    ],
    ids=["first-word", "empty-vanish", "quotes-vanish"],
)
def test_word_property_notices_planted_bugs(broken: Read) -> None:
    """It fails on readers that lose something."""

    def fails(words: list[str]) -> bool:
        try:
            keeps_words(broken, words)
        except (AssertionError, ValueError):
            return True
        return False

    assert find(WORDS, fails, settings=SEARCH)


@given(text=HOSTILE)
def test_nothing_but_a_refusal_comes_of_what_cannot_be_read(text: str) -> None:
    """Any text is read, or refused with a reason."""
    for read in (split_calls, split_one_call):
        try:
            assert read(text)
        except ValueError as error:
            assert str(error)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("ls", [["ls"]]),
        ("ls -l|wc -l", [["ls", "-l"], ["wc", "-l"]]),
        ("ls&&cat a || echo b; true\nfalse;\n", [["ls"], ["cat", "a"], ["echo", "b"], ["true"], ["false"]]),
        ("ls |\n wc", [["ls"], ["wc"]]),
        ("ls |& wc", [["ls"], ["wc"]]),
        ('echo "a b" \'c"d\' e\\ f "g\\"h" ""', [["echo", "a b", 'c"d', "e f", 'g"h', ""]]),
        ('grep "^x$" f', [["grep", "^x$", "f"]]),
        ("git show HEAD~1 a#b", [["git", "show", "HEAD~1", "a#b"]]),
        ("ls 2>&1 >/dev/null 2> /dev/null </dev/null", [["ls"]]),
        ("cat <<'E' | wc\n$(id) `x`\n E\nE\nls", [["cat"], ["wc"], ["ls"]]),
        ('cat <<-"E"\n\tx\n\tE', [["cat"]]),
        ("find . -exec ls {} \\;", [["find", ".", "-exec", "ls", "{}", ";"]]),
    ],
)
def test_what_is_read(text: str, calls: list[list[str]]) -> None:
    """Words, quotes, pipes, lists, documents with a quoted end, and redirections to nowhere."""
    assert said(split_calls(text)) == calls


REFUSED = (
    *("", " ", "\n", ";", "| ls", "ls |", "ls &&", "ls ;; ls", "&& ls", "ls | | wc"),
    *("ls &", "ls & ls", "ls &> x", "ls > x", "ls >> x", "ls < x", "ls 2>&3", "ls 2>&12", "ls >/dev/nullx"),
    *(
        "ls <<< x",
        "cat <<E\nx\nE",
        "cat <<'E'\nx",
        "cat <<'E' <<'F'\nE\nF",
        "cat <<'a b'\na b",
        "cat <<\\E\nE",
    ),
    *("$x", "ls $x", 'ls "$x"', "ls ${x}", "ls $((1))", "ls $(id)", 'ls "$(id)"', "ls `id`", 'ls "`id`"'),
    *(
        "ls $'a'",
        'ls $"a"',
        "ls <(id)",
        "ls >(id)",
        "(ls)",
        "{ ls; }",
        "f() { ls; }",
        "ls {a,b}",
        "ls a{1..3}",
    ),
    *("ls *", "ls ?", "ls [a]", "ls ~", "ls ~/x", "A=~ ls", "ls a:~", "ls # x", "[[ -f x ]]", "[ -f x ]"),
    *("ls 'x", 'ls "x', "ls \\", "l\\\ns", 'ls "a\\\nb"', "ls $\\\n(id)"),
    *("ls \u202e", "ls '\u200b'", "ls '\x1b'", "ls '\x00'", "ls\xa0-l", "ls\r", "ls '\ud800'", "ls\u3000x"),
    "x" * (MAX_CHARS + 1),
    ";".join(["ls"] * (MAX_CALLS + 1)),
)


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: ascii(text)[:40])
def test_what_is_refused(text: str) -> None:
    """Whatever a shell would expand, compute, define, redirect or run alongside it, and what is not seen."""
    with pytest.raises(ValueError, match=r"\w"):
        split_calls(text)


@pytest.mark.covers("REL-L26")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ls *.py ~ [a] a{1,2} '#' #", ("ls", "*.py", "~", "[a]", "a{1,2}", "#", "#")),
        ("  cat 'a b'\n", ("cat", "a b")),
    ],
)
def test_without_a_shell_patterns_mean_themselves(text: str, words: tuple[str, ...]) -> None:
    """REL-L26: nothing is expanded where nothing could expand it."""
    assert split_one_call(text) == words


@pytest.mark.parametrize(
    "text", ["", "ls | wc", "ls; ls", "ls > x", "ls $x", "ls `id`", "ls\nls", "ls &", "(ls)"]
)
def test_without_a_shell_one_program_is_named(text: str) -> None:
    """More than one call, or what only a shell could do, is refused."""
    with pytest.raises(ValueError, match=r"\w"):
        split_one_call(text)
