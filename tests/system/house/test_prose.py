"""Prose is plain English: docstrings, comments, messages and documents use none of the words listed here."""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

UNNATURAL = re.compile(
    r"(?<![\w`'\".])(?:anew|there\s+(?:is|are|was|were)\s+no(?:ne)?\b|(?:is|are)\s+none(?!\s+(?:the|in|to|as|at))|lies|stood"
    r"|stands(?!\s+(?:for|in\s+for))|told|last\s+words?|beside|whereupon|thereof|tidings|naught)(?![\w`])",
    re.IGNORECASE,
)
"""Words that read like a translation, with the plain ones that replace them:

``anew``: again. ``is none``: is not one, is not valid. ``lies``, ``stands``: is.
``there is no …``: say what is missing, or what None means.
``told``: informed, reported, asked. ``last word``: final message. ``beside``: next to, in addition to.
"Stands for" is plain English.
"""
NOT_PROSE = re.compile(r"```.*?```|``[^`]*``|`[^`\n]*`|\{[^{}]*\}|is None|are None", re.DOTALL)
"""Code in a text: fenced or quoted, or the fields of a format."""
PROGRAM = re.compile(
    r"^\s*(?:import \w|from [\w.]+ import|async def|def \w+\(|class \w+.*:|print\()", re.MULTILINE
)
FROZEN = {"tests/system/house/test_prose.py"}
"""This file, which lists the words."""


def unnatural_words(text: str) -> list[str]:
    """Return the words of a text that read like a translation, in order."""
    return [" ".join(match[0].split()) for match in UNNATURAL.finditer(NOT_PROSE.sub(" ", text))]


def prose_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and text of each comment and each literal of a module that is prose."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_text = token.type == tokenize.STRING and " " in token.string and not _is_program(token.string)
        if is_text or token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _is_program(literal: str) -> bool:
    body = textwrap.dedent(literal.lstrip("rRbBfFuU").strip("\"'"))
    if PROGRAM.search(body):
        return True
    try:
        ast.parse(body)
    except (SyntaxError, ValueError):
        return False
    return bool(re.search(r"[=(\[]", body))


def findings(files: Iterable[Path], checkout: Path) -> list[str]:
    """Return a line for each unnatural word in a module's prose or a document."""
    found = []
    for path in files:
        name = path.relative_to(checkout).as_posix()
        if path.suffix not in {".py", ".md"} or name.startswith(tuple(FROZEN)):
            continue
        text = path.read_text("utf-8")
        pieces = [(1, text)] if path.suffix == ".md" else list(prose_of(text))
        found += [f"{name}:{line}: {word}" for line, piece in pieces for word in unnatural_words(piece)]
    return found


def test_prose_is_plain_english(house_files: list[Path], checkout: Path) -> None:
    """No docstring, comment, message or document uses an unnatural word."""
    assert house_files
    assert findings(house_files, checkout) == []


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('"""Where the journal lies."""\n', "lies"),
        ('raise ValueError("the workspace is none")\n', "is none"),
        ("x = 1  # told by another process\n", "told"),
        ('f"{name} stands beside it"\n', "stands"),
        ('"""Its last\n    words."""\n', "last words"),
        ('"""Begin anew."""\n', "anew"),
        ('"""Return 0 if there is\n    no store."""\n', "there is no"),
    ],
)
def test_planted_unnatural_word_is_found(tmp_path: Path, text: str, word: str) -> None:
    """In a docstring, a message, a comment, a formatted text, and over the end of a line."""
    path = tmp_path / "room.py"
    path.write_text(text)
    assert findings([path], tmp_path)[0].endswith(f": {word}")


@pytest.mark.parametrize(
    "text",
    [
        'told = {"told": 1}\n',
        '"""A name stands for a tool; ``told`` is a variable."""\n',
        'PROGRAM = """\nimport beside\ntold = beside.look()\n"""\n',
        'x = "None of it is None here"\n',
    ],
)
def test_code_is_not_prose(tmp_path: Path, text: str) -> None:
    """Names, quoted names, embedded programs and plain uses of the words pass."""
    path = tmp_path / "room.py"
    path.write_text(text)
    assert findings([path], tmp_path) == []


def test_documents_are_prose(tmp_path: Path) -> None:
    """A document is searched outside its blocks of code."""
    path = tmp_path / "notes.md"
    path.write_text("The journal lies here.\n\n```python\ntold = 1\n```\n")
    assert findings([path], tmp_path) == ["notes.md:1: lies"]
