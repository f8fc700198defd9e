"""Notes: the TODO, FIXME, XXX and HACK marks people leave in their files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sessiontree.survey.languages import Language
from sessiontree.survey.lines import LineIndex
from sessiontree.survey.syntax import scanner

MARKS = ("TODO", "FIXME", "XXX", "HACK")
MAX_NOTE_CHARS = 200
"""Longest text of one note; what is cut ends with an ellipsis."""

_MARK = re.compile(r"(?<![\w.$/-])(?:TODO|FIXME|XXX|HACK)(?![\w-])")
# in prose the words are also talked about: only what looks like a note counts
_PROSE_MARK = re.compile(
    r"^[ \t>*+#\-\[\]x\d.)]{0,20}[*_`]{0,3}((?:TODO|FIXME|XXX|HACK)(?![\w-]))"
    r"|(?<![\w.$/-])((?:TODO|FIXME|XXX|HACK)(?=[:(]))",
    re.MULTILINE,
)
_ENDING = re.compile(r"(?:\*/|-->|--\}\}|#\}|\|#|-\}|\*\)|\"\"\"|''')[ \t]*$")
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True, slots=True)
class Note:
    """One mark and what is said after it."""

    path: str
    line: int
    """From 1."""
    text: str
    """From the mark to the end of line or comment, at most :data:`MAX_NOTE_CHARS`."""

    @property
    def citation(self) -> str:
        """Where it stands, such as ``src/parse.py#L12``."""
        return f"{self.path}#L{self.line}"


def find_notes(
    path: str, text: str, lines: list[str], language: Language, documented: frozenset[int] = frozenset()
) -> Iterator[Note]:
    """Yield the notes of a text, at most one per line, by line.

    Program text is searched in its comments and documenting strings; prose where a line begins with a mark
    or a colon or bracket follows it; data without comments not at all.

    Args:
        path: The path to cite.
        text: The whole text.
        lines: Its lines.
        language: What it is written in.
        documented: Numbers of lines inside documenting strings.
    """
    if not any(mark in text for mark in MARKS):
        return
    index = LineIndex(lines)
    seen = 0
    for start, end in _spans(text, language, index, documented):
        number = index.line_of(start)
        if number > seen:
            seen = number
            yield Note(path, number, _said(text[start : min(end, start + 2 * MAX_NOTE_CHARS)]))


def _spans(
    text: str, language: Language, index: LineIndex, documented: frozenset[int]
) -> Iterator[tuple[int, int]]:
    """Yield where each mark starts, and where the comment or text it stands in ends."""
    if language.role == "prose":
        for match in _PROSE_MARK.finditer(text):
            yield match.start(match.lastindex or 0), len(text)
        return
    pattern = scanner(language.syntax)
    if pattern is None:
        return
    for token in pattern.finditer(text):
        in_comment = token.lastgroup == "comment"
        if in_comment or documented:
            for match in _MARK.finditer(text, token.start(), token.end()):
                if in_comment or index.line_of(match.start()) in documented:
                    yield match.start(), token.end()


def _said(text: str) -> str:
    line = _UNPRINTABLE.sub(" ", _ENDING.sub("", text.partition("\n")[0]))
    line = " ".join(line.split())
    return line if len(line) <= MAX_NOTE_CHARS else line[: MAX_NOTE_CHARS - 1] + "…"
