"""Citations: what remains holds in the files, what does not hold is gone, and prose stays as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from sessiontree.survey.source import citations
from sessiontree.survey.source.citations import CheckedText, LinesAt, check_citations, check_text
from sessiontree.testing.context import call_tool, make_context

FILES: dict[str, list[str]] = {
    "a.py": ["import os", "def run(task):", "    return os.name"],
    "src/b c.md": ["# Title", 'say "hi"'],
    "app/[slug]/(x).ts": ["export const one = 1"],
    "empty.txt": [],
}
MakeTree = Callable[[Mapping[str, str | bytes]], object]


@dataclass(frozen=True)
class Cited:
    """A citation as a model may write it, and whether it holds."""

    path: str
    first: int
    last: int

    @property
    def text(self) -> str:
        """How it is written."""
        return f"{self.path}#L{self.first}-L{self.last}"

    @property
    def holds(self) -> bool:
        """Whether the files have these lines; written apart from the code under test."""
        return (
            self.path in FILES
            and self.first in range(1, self.last + 1)
            and self.last <= len(FILES[self.path])
        )


NUMBERS = st.integers(0, 5) | st.sampled_from([999_999_999, 10**12])
CITED = st.builds(Cited, st.sampled_from([*FILES, "gone.py", "../a.py", "/a.py"]), NUMBERS, NUMBERS)
PROSE = st.text(alphabet="ab é\n.\"'`()[]{},;:#L19-/\\\x00\u202e", max_size=30)
ANY_TEXT = st.lists(
    PROSE | CITED.map(lambda one: one.text) | st.sampled_from(["#L", "#L1", "-L", "a.py", '"def run"']),
    max_size=12,
).map("".join)
WORDS = st.text(alphabet="abc def.\n", max_size=20).map(lambda text: f"{text}x")


def checked(text: str, lines_at: LinesAt = FILES.get) -> CheckedText:
    """Return a text as it is checked against the files."""
    return check_text(text, lines_at)


@given(ANY_TEXT)
def test_checked_text_holds_whatever_a_model_writes(text: str) -> None:
    """Each mark that remains belongs to lines of a file; a text that was checked needs no second check."""
    found = checked(text)
    kept = [one for one in found.citations if one.ok]
    assert len(re.findall("#L[0-9]", found.text)) == len(kept)
    assert all(Cited(one.path, one.first, one.last).holds for one in kept)
    assert len(found.citations) - len(kept) == found.removed
    again = checked(found.text)
    assert (again.text, again.removed) == (found.text, 0)
    if re.search("#L[0-9]", text) is None:
        assert found.text == text


Check = Callable[[str], CheckedText]
PARTS = st.lists(st.tuples(WORDS, CITED), max_size=6)


def is_exact(check: Check, parts: Sequence[tuple[str, Cited]]) -> bool:
    """Return whether a check removes exactly the citations that do not hold, and counts them."""
    text = wanted = ""
    follows = [*(words[0] for words, _ in parts[1:]), ""]
    for (words, one), after in zip(parts, follows, strict=False):
        text += f"{words} [{one.text}]"
        wanted += words
        if one.holds:
            wanted += f" [{one.text}]"
        elif after and after not in " .\n":
            wanted += " "
    found = check(text)
    return (found.text, found.removed) == (wanted, sum(not one.holds for _, one in parts))


@given(PARTS)
def test_checked_text_leaves_prose_as_it_is(parts: list[tuple[str, Cited]]) -> None:
    """Byte for byte: only a citation that does not hold goes, with its brackets and a space at an end."""
    assert is_exact(checked, parts)


def off_by_one(text: str) -> CheckedText:
    """Believe that each file has one line more."""
    return checked(text, lambda path: [*FILES[path], ""] if path in FILES else None)


def outside(text: str) -> CheckedText:
    """Believe that a path above the workspace is one inside."""
    return checked(text, lambda path: FILES.get(path.removeprefix("../")))


def tidied(text: str) -> CheckedText:
    """Tidy the prose as well."""
    found = checked(text)
    return found.model_copy(update={"text": re.sub(r"\n+", "\n", found.text)})


@pytest.mark.parametrize("planted", [off_by_one, outside, tidied])
def test_planted_bug_of_a_check_is_found(planted: Check) -> None:
    """A check that keeps too much, or changes prose, does not pass for exact."""
    bounded = settings(max_examples=500, derandomize=True, database=None, phases=[Phase.generate])
    find(PARTS, lambda parts: not is_exact(planted, parts), settings=bounded)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("It runs (a.py#L2-L3).", "It runs (a.py#L2-L3)."),
        ("It runs (a.py#L2-3) and `a.py#L1`.", "It runs (a.py#L2-3) and `a.py#L1`."),
        ("It runs (a.py#L2-L4).", "It runs."),
        ("It runs [`a.py#L9`] twice.", "It runs twice."),
        ("See (a.py#L1, gone.py#L1, a.py#L3).", "See (a.py#L1, a.py#L3)."),
        ("See [gone.py#L1; a.py#L3].", "See [a.py#L3]."),
        ("See (gone.py#L1, gone.py#L2).", "See."),
        ("See src/b c.md#L1, app/[slug]/(x).ts#L1", "See src/b c.md#L1, app/[slug]/(x).ts#L1"),
        ("[a.py#L1](a.py#L1)", "[a.py#L1](a.py#L1)"),
        ("https://host/a.py#L1 /etc/passwd#L1 ../a.py#L1 a.py", " a.py"),
        ("empty.txt#L1 a.py#L0 a.py#L3-L2 #L1 a.py#L", " a.py#L"),
        (f"a.py#L{'9' * 5_000}", ""),
        # what a removal brings together is judged again
        ("a.py#L1(gone.py#L7)9", ""),
        ("gone.py#L(gone.py#L7)1", ""),
        ('The line "def run(task):" [a.py#L2] is it.', 'The line "def run(task):" [a.py#L2] is it.'),
        ('The line "def  run(task)," [a.py#L1-L3]', 'The line "def  run(task)," [a.py#L1-L3]'),
        ('The line "def stop(task):" [a.py#L1-L3]', 'The line "def stop(task):"'),
        ("“import os” (a.py#L2) is not there", "“import os” is not there"),
    ],
)
def test_checked_text_of_one_line(text: str, left: str) -> None:
    """Ranges, lists, links, quotations, and paths that contain spaces or brackets."""
    assert checked(text).text == left


async def test_check_citations_reads_what_the_session_may_read(make_tree: MakeTree, tmp_path: Path) -> None:
    """A path above the workspace, a link out of it, a directory and a binary file hold nothing."""
    outer = tmp_path.parent / f"{tmp_path.name}-secret.txt"
    outer.write_text("secret\n")
    make_tree({"a.py": "one\r\ntwo\n", "b.bin": b"\0\1\n", "d/x.md": "# x\n"})
    (tmp_path / "link.txt").symlink_to(outer)
    text = f"a.py#L2 ../{outer.name}#L1 {outer}#L1 link.txt#L1 d#L1 b.bin#L1 a.py#L3 d/x.md#L1"
    result: Any = await call_tool(check_citations, make_context(tmp_path), text=text)
    assert result.output["text"] == "a.py#L2 d/x.md#L1"
    assert result.output["removed"] == 6
    assert [one["path"] for one in result.output["citations"] if one["ok"]] == ["a.py", "d/x.md"]


def test_check_is_quick_whatever_the_text() -> None:
    """Each removal looks back at one citation, not at the whole text."""
    looks = 0

    def lines_at(path: str) -> list[str] | None:
        nonlocal looks
        looks += 1
        return FILES.get(path)

    pairs = 2_000
    assert checked("a.py#L1 gone.py#L1 " * pairs, lines_at).removed == pairs
    assert looks < 2 * pairs * citations._MAX_PATH_WORDS
