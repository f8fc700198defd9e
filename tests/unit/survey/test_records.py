"""Records: what memory keeps of a file, and the lines that answer: never a file's imports."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sessiontree.survey.source.question import name_words
from sessiontree.survey.source.records import (
    EXCERPT_LINES,
    MAX_FILE_RECORDS,
    MAX_TEXT_CHARS,
    SurveyEntry,
    build_excerpt,
    collect_entries,
    determine_audience,
    find_nearest_entry,
    parse_entry,
)
from sessiontree.survey.source.source import SourceFile, read_source
from tests.example_fixtures import examples

TEXT = '''"""What this file is for.

More of it.
"""

import os
from a import b


class Cache:
    """Keeps things."""

    def get(self, key: str) -> str:
        """Return a thing.

        Where there is one.
        """
        # looked up twice
        return self.load(key, "fast")
'''


def read(path: str, text: str) -> SourceFile:
    """Return what a file with this text is."""
    return read_source(path, text.encode(), len(text.encode()))


def entry(file: SourceFile, name: str) -> SurveyEntry:
    """Return the one entry of a name."""
    (found,) = [one for one in collect_entries(file)[0] if one.name == name]
    return found


def test_entries_hold_what_a_definition_says() -> None:
    """Summary, signature, the rest of its documentation, its words, what it calls; taken apart again."""
    file = read("src/store.py", TEXT)
    entries, dropped = collect_entries(file)
    assert [(one.kind, one.name) for one in entries] == [
        ("file", "src/store.py"),
        ("class", "Cache"),
        ("function", "Cache.get"),
    ]
    assert dropped == 0
    get = entry(file, "Cache.get")
    assert get.source == "src/store.py#L13-L19"
    parts = parse_entry(get.text, get.source)
    assert parts is not None
    assert (parts.kind, parts.name, parts.summary) == ("function", "Cache.get", "Return a thing.")
    assert parts.signature == "def get(self, key: str) -> str"
    assert parts.more.startswith("Where there is one.")
    assert "looked up twice" in parts.more
    assert parts.calls == "load"
    assert replace(get, symbol=None) == parts
    assert parse_entry("no record", get.source) is None
    assert parse_entry("function f in other.py", get.source) is None
    assert parse_entry(get.text, "no source") is None


def test_entries_of_documents_are_their_sections() -> None:
    """By headings of Markdown and reStructuredText; a fence hides what looks like one."""
    markdown = read("a.md", "# One\ntext\n## Two\n```\n# not\n```\n# Three\nmore\n")
    assert [(one.name, one.first, one.last) for one in collect_entries(markdown)[0]] == [
        ("One", 1, 2),
        ("One / Two", 3, 6),
        ("Three", 7, 8),
    ]
    rst = read("a.rst", "One\n===\n\ntext\n\nTwo\n---\n\nmore\n")
    assert [(one.name, one.first) for one in collect_entries(rst)[0]] == [("One", 1), ("One / Two", 6)]
    assert [one.kind for one in collect_entries(read("a.toml", "x = 1\n"))[0]] == ["file"]
    assert collect_entries(read("a.py", "import os\n"))[0] == []


def test_entries_beyond_the_bound_are_the_shortest() -> None:
    """Constants go first, then short definitions; the others are counted."""
    text = "X = 1\n" * 5 + "def f():\n    pass\n" * MAX_FILE_RECORDS
    entries, dropped = collect_entries(read("a.py", text))
    assert (len(entries), dropped) == (MAX_FILE_RECORDS, 5)
    assert {one.kind for one in entries} == {"function"}


def test_type_tells_code_from_the_rest() -> None:
    """Definitions of a project's own code are found first; tests, examples and documents are apart."""
    kinds = {
        path: entry(file, "f").type
        for path in ("src/a.py", "tests/a.py", "src/test_a.py", "examples/a.py", "src/a.test.ts")
        for file in [read(path, "function f() {}" if path.endswith("ts") else "def f(): pass\n")]
    }
    assert [path for path, kind in kinds.items() if kind == "fact"] == ["src/a.py"]


@pytest.mark.parametrize(
    ("path", "name", "audience"),
    [
        ("src/a.py", "f", "code"),
        ("src/testing.py", "f", "code"),
        ("src/lib.rs", "tests.f", "test"),
        ("a/__tests__/b.ts", "f", "test"),
        ("pkg/a_test.go", "f", "test"),
        ("bench/a.py", "f", "example"),
        ("CHANGES.rst", "x", "history"),
        ("docs/changelog.md", "x", "history"),
        ("src/changelog_writer.py", "f", "code"),
    ],
)
def test_audience_of_a_file_is_told_by_its_path(path: str, name: str, audience: str) -> None:
    """Whom a file is for decides how early it answers."""
    assert determine_audience(path, name) == audience


def test_name_words_take_identifiers_apart() -> None:
    """Capitals, underscores and digits part words."""
    assert name_words("getHTTPBody_v2.max-retries") == ["get", "http", "body", "v", "2", "max", "retries"]


def test_excerpt_shows_signature_documentation_and_body() -> None:
    """A function whole where it is short; a long one is cut; a class by its members' first lines."""
    file = read("src/store.py", TEXT)
    assert [number for number, _ in build_excerpt(file, entry(file, "Cache.get"))] == list(range(13, 20))
    long = "def f():\n    '''Doc.'''\n" + "".join(f"    x = {number}\n" for number in range(50))
    lines = build_excerpt(read("a.py", long), entry(read("a.py", long), "f"))
    assert [number for number, _ in lines] == list(range(1, EXCERPT_LINES + 1))
    members = "".join(f"    def m{number}(self):\n        return {number}\n" for number in range(20))
    whole = read("a.py", f'class A:\n    """Doc."""\n{members}')
    shown = [text.strip() for _, text in build_excerpt(whole, entry(whole, "A"))]
    assert shown == ["class A:", '"""Doc."""', *(f"def m{number}(self):" for number in range(20))]


def test_excerpt_of_a_file_is_what_it_says_of_itself() -> None:
    """Its documentation, and no import."""
    file = read("src/store.py", TEXT)
    shown = "\n".join(text for _, text in build_excerpt(file, entry(file, "src/store.py")))
    assert shown.startswith('"""What this file is for.')
    assert "import" not in shown


def test_entry_at_finds_what_moved() -> None:
    """By kind and name, the nearest of several; None for what is gone."""
    file = read("a.py", "x = 1\n" * 10 + "def f(): pass\n" + "x = 1\n" * 10 + "def f(): pass\n")
    entries, _ = collect_entries(file)
    sought = next(one for one in entries if one.name == "f")
    near = find_nearest_entry(entries, replace(sought, first=1))
    far = find_nearest_entry(entries, replace(sought, first=90))
    assert near is not None
    assert far is not None
    assert (near.first, far.first) == (11, 22)
    assert find_nearest_entry(entries, replace(sought, kind="class")) is None


@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(["a.py", "a.md", "a.rst", "a.ts", "a.json", "b"]), st.text(max_size=400))
def test_entries_lie_within_their_file(path: str, text: str) -> None:
    """Whatever the text: records are bounded and can be taken apart, excerpts are lines of the file."""
    file = read(path, text)
    lines = file.text.split("\n")
    for one in collect_entries(file)[0]:
        assert 1 <= one.first <= one.last <= max(1, file.totals.lines)
        assert len(one.text) <= MAX_TEXT_CHARS
        parts = parse_entry(one.text, one.source)
        assert parts is None or parts.kind == one.kind
        for number, line in build_excerpt(file, one):
            assert lines[number - 1] == line
