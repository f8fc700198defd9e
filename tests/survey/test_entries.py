"""What memory keeps of a file: the right lines, what is said there, and no more than fits."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessiontree.survey.entries import MAX_FILE_ENTRIES, FileEntries, entries_of
from sessiontree.survey.entry import MAX_TEXT_CHARS, SurveyEntry, named_in, summary_of, text_of
from sessiontree.survey.identifiers import words_of
from sessiontree.survey.prints import is_generated

EntriesOf = Callable[[str, bytes, int], FileEntries]


def entries(path: str, text: str) -> dict[str, SurveyEntry]:
    """Return a text's entries by name."""
    data = text.encode()
    return {one.name: one for one in entries_of(path, data, len(data)).entries}


def holds(find: EntriesOf, path: str, text: str) -> None:
    """Every entry cites lines of the text that hold its name, and its own text gives kind and name back."""
    data = text.encode("utf-8", "surrogatepass")
    lines = text.split("\n")
    for one in find(path, data, len(data)).entries:
        assert 1 <= one.first <= one.last <= max(1, len(lines)), one
        assert len(one.text) <= MAX_TEXT_CHARS
        assert named_in(one.text, path) == (one.kind, one.name)
        if one.kind in {"function", "class"}:
            assert one.name.rpartition(".")[2] in lines[one.first - 1], one
        if one.kind == "section":
            last = one.name.rpartition(" / ")[2]
            assert last in " ".join(lines[one.first - 1 : one.first + 1]), one


def test_a_definition_is_kept_with_what_it_says_and_does() -> None:
    """Name, words, head, first paragraph, what is raised and called; the lines are the definition's."""
    found = entries(
        "net/client.py",
        '''"""Client: asks the server.

More about it.
"""
import socket

class HTTPClient(Base):
    """Asks again when the server is busy."""

    @property
    def maxRetries(
        self, limit: int = 3
    ) -> int:
        """Return how often is asked again,
        at most.

        Args: none.
        """
        if limit < 0:
            raise errors.LimitError("no")
        return clamp(limit)
''',
    )
    assert list(found) == ["net/client.py", "HTTPClient", "HTTPClient.maxRetries"]
    one = found["HTTPClient.maxRetries"]
    assert (one.kind, one.first, one.last) == ("function", 11, 21)
    assert one.text.split("\n") == [
        "function HTTPClient.maxRetries in net/client.py",
        "Return how often is asked again, at most.",
        "http client max retries",
        "def maxRetries( self, limit: int = 3 ) -> int",
        "raises LimitError",
        "calls LimitError, clamp",
    ]
    assert "has maxRetries" in found["HTTPClient"].text
    file = found["net/client.py"]
    assert (file.first, file.last, summary_of(file.text)) == (1, 21, "Client: asks the server.")
    assert "defines HTTPClient" in file.text
    assert "imports socket" in file.text


@pytest.mark.parametrize(
    ("path", "text", "name", "said"),
    [
        ("a.js", "/**\n * Cleans up.\n * @param x y\n */\nfunction sweep(x) {\n}\n", "sweep", "Cleans up."),
        (
            "a.go",
            "package a\n\n// Sweep cleans up\n// twice.\nfunc Sweep() {\n}\n",
            "Sweep",
            "Sweep cleans up twice.",
        ),
        ("a.rs", "/// Cleans up.\n#[inline]\npub fn sweep() {\n}\n", "sweep", "Cleans up."),
        (
            "a.java",
            "class A {\n  // Cleans up.\n  @Override\n  void sweep() {\n  }\n}\n",
            "A.sweep",
            "Cleans up.",
        ),
        ("a.sh", "# Cleans up.\nsweep() {\n  true\n}\n", "sweep", "Cleans up."),
        ("a.py", "# Cleans up.\ndef sweep():\n    pass\n", "sweep", "Cleans up."),
        ("a.py", "x = 1  # no\n\ndef sweep(): return 'Cleans up.'\n", "sweep", ""),
        ("a.py", "def sweep():\n    r'''Cleans\n    up.'''\n", "sweep", "Cleans up."),
        ("a.py", "def sweep(\n", "sweep", ""),
    ],
)
def test_what_is_said_of_a_definition_is_found(path: str, text: str, name: str, said: str) -> None:
    """Comments above, annotations between, and documenting strings below, in any language."""
    one = entries(path, text)[name]
    assert summary_of(one.text) == said
    holds(entries_of, path, text)


def test_a_licence_is_not_what_a_file_is_about() -> None:
    """The first comment that speaks of the file counts."""
    found = entries("a.c", "/* Copyright 2020 X\n * all rights reserved */\n\n/* Sorts numbers. */\nint x;\n")
    assert summary_of(found["a.c"].text) == "Sorts numbers."


def test_prose_is_kept_by_headings() -> None:
    """Each section with its headings and its beginning; a heading inside a code block is none."""
    text = "# Guide\nhello\n\n```\n# no heading\n```\n## Install it\n\nRun `make`.\n\nOther\n=====\nend\n"
    found = entries("doc/guide.md", text)
    names = ["doc/guide.md", "Guide", "Guide / Install it", "Other"]
    assert list(found) == names
    assert [(found[name].first, found[name].last) for name in names] == [(1, 13), (1, 6), (7, 10), (11, 13)]
    assert summary_of(found["Guide / Install it"].text) == "Run `make`."
    assert summary_of(found["doc/guide.md"].text) == "Guide hello"
    rst = entries("a.rst", "Title\n=====\n\nOne\n~~~\ntext\n\nTwo\n~~~\n")
    assert list(rst) == ["a.rst", "Title", "Title / One", "Title / Two"]


def test_too_many_definitions_leave_the_longest() -> None:
    """The file's own entry is always among those that stay; the rest is counted."""
    text = "".join(f"def f{number}():\n" + "    pass\n" * (number % 7 + 1) for number in range(400))
    found = entries_of("a.py", text.encode(), len(text))
    assert (len(found.entries), found.dropped) == (MAX_FILE_ENTRIES, 201)
    assert found.entries[0].kind == "file"
    assert min(one.lines for one in found.entries[1:]) >= 5
    assert [one.first for one in found.entries[1:]] == sorted(one.first for one in found.entries[1:])


def test_what_is_no_text_or_written_by_programs_has_no_definitions() -> None:
    """A binary file has no entry, a generated one its own alone."""
    assert entries_of("a.py", b"\x00\x01", 2) == FileEntries()
    generated = "# @generated by x\ndef f():\n    pass\n"
    assert list(entries("a.py", generated)) == ["a.py"]


@pytest.mark.slow
def test_real_files_agree_with_their_syntax_trees(python_files: list[Path]) -> None:
    """What is found in the lines is what the parser finds: names, first and last lines, documentation."""
    checked = 0
    for path in python_files[::4]:
        text = path.read_text("utf-8")
        holds(entries_of, path.name, text)
        if is_generated(text):
            continue
        found = {(one.first, str(one.kind)): one for one in entries_of(path.name, text.encode(), 0).entries}
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                continue
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            one = found.get((node.lineno, kind))
            assert one is not None, (path, node.name)
            checked += 1
            assert one.name.rpartition(".")[2] == node.name
            assert one.last == node.end_lineno, (path, node.name)
            documented = inspect.cleandoc(ast.get_docstring(node) or "").partition("\n\n")[0].split()
            # a backslash is written twice there
            if documented and "\\" not in one.text and "\\" not in " ".join(documented):
                assert summary_of(one.text).rstrip("…") in " ".join(documented), (path, node.name)
    assert checked > 1_000


@given(st.text(max_size=400), st.sampled_from(["a.py", "b.js", "c.md", "d.rst", "e.c", "f.sh", "g"]))
def test_any_text_gives_entries_that_cite_it(text: str, path: str) -> None:
    """Whatever stands there, nothing fails and every citation lies inside."""
    data = text.encode("utf-8", "surrogatepass")
    found = entries_of(path, data, len(data))
    lines = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert all(1 <= one.first <= one.last <= lines for one in found.entries)


_PIECES = st.sampled_from(
    [
        "def f(a):",
        "    def g(self):",
        "class A:",
        '    """Say."""',
        "    pass",
        "",
        "# note",
        "x = '''",
        "'''",
    ]
)


@given(st.lists(_PIECES, max_size=30))
def test_pieces_of_programs_give_entries_that_hold_their_names(pieces: list[str]) -> None:
    """Broken programs too: the cited line holds the name."""
    holds(entries_of, "a.py", "\n".join(pieces))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("maxRetries", ["max", "retries"]),
        ("max_retries", ["max", "retries"]),
        ("HTTPServer2", ["http", "server", "2"]),
        ("XMLHttpRequest.send", ["xml", "http", "request", "send"]),
        ("", []),
        ("größe", ["gr", "öß", "e"]),
    ],
)
def test_names_are_split_into_words(name: str, words: list[str]) -> None:
    """By case, digits and everything that is no letter."""
    assert words_of(name) == words


@given(st.text(max_size=2_000), st.text(max_size=2_000), st.lists(st.text(max_size=80), max_size=50))
def test_a_text_of_an_entry_is_bounded(name: str, said: str, names: list[str]) -> None:
    """Title and parts stay one line each, whatever they hold."""
    text = text_of("class", "A", "p", said, name, ("has", names))
    assert len(text) <= MAX_TEXT_CHARS
    assert text.startswith("class A in p\n")
