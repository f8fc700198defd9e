"""Section entries: what memory keeps of prose, one entry per heading and what follows it.

Headings are those of Markdown (a line of ``#``, or a line underlined with ``=`` or ``-``) and of
reStructuredText, whose underlines may be of other characters.

Source: CommonMark 0.31, sections 4.2, 4.3 and 4.5; docutils' reStructuredText specification, "Sections".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sessiontree.survey.entry import SurveyEntry, text_of

MAX_SECTION_CHARS = 500
MAX_NAME_CHARS = 200
_HASHES = re.compile(r" {0,3}(#{1,6})[ \t]+(\S.*?)[ \t]*#*[ \t]*$")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_UNDERLINE = re.compile(r"([=\-~^\"'`:.*+#<>_])\1{2,}[ \t]*$")


def section_entries(path: str, language: str, lines: Sequence[str]) -> Iterator[SurveyEntry]:
    """Yield an entry per section, by line; what stands before the first heading has none.

    Args:
        path: The file's.
        language: Its language's name; without ``Markdown`` or ``reStructuredText`` there are no headings.
        lines: As they stand.
    """
    headings = list(_headings(lines, language)) if language in {"Markdown", "reStructuredText"} else []
    around: list[tuple[int, str]] = []
    ends = [first - 1 for _, _, first, _ in headings[1:]] + [len(lines)]
    for (level, heading, first, body), last in zip(headings, ends, strict=False):
        while around and around[-1][0] >= level:
            around.pop()
        around.append((level, heading))
        name = " / ".join(each for _, each in around)[-MAX_NAME_CHARS:]
        yield SurveyEntry("section", name, first, last, _text(path, name, lines[body:last]))


def _text(path: str, name: str, lines: Sequence[str]) -> str:
    said: list[str] = []
    chars = 0
    for line in lines:
        if chars >= MAX_SECTION_CHARS:
            break
        words = " ".join(line.split())
        if words:
            said.append(words)
            chars += len(words) + 1
    return text_of("section", name, path, " ".join(said), max_summary_chars=MAX_SECTION_CHARS)


def _headings(lines: Sequence[str], language: str) -> Iterator[tuple[int, str, int, int]]:
    """Yield level, text, first line from 1, and how many lines stand before what follows it."""
    levels: list[str] = []
    fence = ""
    number = 0
    while number < len(lines):
        line = lines[number]
        fenced = _FENCE.match(line) if language == "Markdown" else None
        if fence:
            if fenced is not None and fenced[1].startswith(fence):
                fence = ""
        elif fenced is not None:
            fence = fenced[1]
        elif language == "Markdown" and (hashes := _HASHES.match(line)) is not None:
            yield len(hashes[1]), hashes[2], number + 1, number + 1
        elif number + 1 < len(lines) and _is_title(line, lines[number + 1], language):
            mark = lines[number + 1][0]
            if mark not in levels:
                levels.append(mark)
            level = "=-".index(mark) + 1 if language == "Markdown" else levels.index(mark) + 1
            yield level, line.strip(), number + 1, number + 2
            number += 1
        number += 1


def _is_title(line: str, below: str, language: str) -> bool:
    if not line.strip() or line[0].isspace() or _UNDERLINE.match(line) or not _UNDERLINE.match(below):
        return False
    if language == "Markdown":
        return below[0] in "=-" and line[0] not in "|>-*+#"
    return len(below.rstrip()) >= len(line.rstrip())
