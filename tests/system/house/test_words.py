"""Names of files, classes and public functions consist of words of the glossary or of a plain list."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

WORDS = Path(__file__).with_name("words.txt")
"""Plain English words and terms of the field, one a line, in alphabetical order; each was looked at."""
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
GLOSSARY = re.compile(r"## Glossary\n(.*?)(?:\n## |\Z)", re.DOTALL)


def words_in(name: str) -> list[str]:
    """Return the words of an identifier in snake case or camel case, in lower case."""
    return [word.lower() for word in WORD.findall(name)]


def known_words(checkout: Path) -> set[str]:
    """Return the words of the list and those that the glossary explains."""
    found = GLOSSARY.search((checkout / "ARCHITECTURE.md").read_text("utf-8"))
    terms = [row.split("|")[1] for row in (found[1] if found else "").splitlines() if row.count("|") > 1]
    return {word for term in terms for word in words_in(term)} | set(WORDS.read_text("utf-8").split())


def names_in(path: Path) -> Iterator[str]:
    """Yield the name of a module, of its classes, and of its public functions and methods."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef) or (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_")
        ):
            yield node.name


def unknown_words(files: Iterable[Path], known: set[str]) -> list[str]:
    """Return a line for each name that has a word which is neither listed nor in the glossary."""
    return [
        f"{path.name}: {name}: {word}"
        for path in files
        for name in names_in(path)
        for word in words_in(name)
        if word not in known
    ]


def test_names_are_plain_words(shipped_modules: list[Path], checkout: Path) -> None:
    """A new word is looked at before it enters the list: it is plain English or a term of the field."""
    assert shipped_modules
    assert unknown_words(shipped_modules, known_words(checkout)) == []


def test_words_are_in_order_and_unique() -> None:
    """The list is alphabetical, in lower case, and names no word twice."""
    words = WORDS.read_text("utf-8").split()
    assert words == sorted(set(words))
    assert all(re.fullmatch("[a-z]+", word) for word in words)


def test_planted_invented_word_is_found(tmp_path: Path) -> None:
    """In a file's name, a class and a public function; a private function is left alone."""
    path = tmp_path / "baggage.py"
    path.write_text("class Wish:\n    def heed(self): ...\n\ndef _vigil(): ...\n")
    found = unknown_words([path], {"plain"})
    assert found == ["baggage.py: baggage: baggage", "baggage.py: Wish: wish", "baggage.py: heed: heed"]
