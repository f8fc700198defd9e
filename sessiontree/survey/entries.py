"""Entries: one file's bytes in, what memory keeps of it out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sessiontree.survey.code_entries import code_entries
from sessiontree.survey.comments import at_head, documenting
from sessiontree.survey.decoding import decode
from sessiontree.survey.entry import SurveyEntry, text_of
from sessiontree.survey.imports import find_imports
from sessiontree.survey.languages import Language, is_binary_name, language_of
from sessiontree.survey.lines import lines_of
from sessiontree.survey.prints import is_generated
from sessiontree.survey.section_entries import section_entries
from sessiontree.survey.source import HEAD_CHARS, definitions_in, printable_path
from sessiontree.survey.syntax import masked

MAX_FILE_ENTRIES = 200
"""Most entries of one file, its own included."""
_PROSE_BEGINNING_LINES = 30
_MARKS = re.compile(r"^[#=*\-_~>|\s]+|[=*\-_~|]+$")


@dataclass(frozen=True, slots=True)
class FileEntries:
    """What memory keeps of one file."""

    entries: tuple[SurveyEntry, ...] = ()
    """The file's own first, then by line."""
    dropped: int = 0
    """Entries beyond the bound."""


def entries_of(path: str, data: bytes, total_bytes: int) -> FileEntries:
    """Return what is to be remembered of a file: itself, and its definitions or sections.

    Args:
        path: Its path relative to the surveyed root, ``/`` between parts.
        data: Its bytes, or the first of them.
        total_bytes: How many the whole file has.

    Returns:
        Nothing for a file that is no text. Of too many definitions the longest; of a file that a program
        wrote none.

    Contract: pure; time and memory linear in ``len(data)``. May raise on what no test foresaw.
    """
    path = printable_path(path)
    decoded = decode(data, cut=total_bytes > len(data))
    if decoded is None or (decoded.problem and is_binary_name(path)):
        return FileEntries()
    text = decoded.text
    language = language_of(path, text[:HEAD_CHARS])
    lines = lines_of(text)
    if language.role == "prose":
        own = _entry(path, lines, _beginning(lines), language)
        found = list(section_entries(path, language.name, lines))
    else:
        own, found = _code(path, text, lines, language)
    kept = _longest(found, MAX_FILE_ENTRIES - 1)
    return FileEntries((own, *kept), len(found) - len(kept))


def _code(
    path: str, text: str, lines: list[str], language: Language
) -> tuple[SurveyEntry, list[SurveyEntry]]:
    without_comments = masked(text, language.syntax)
    masked_lines = lines if without_comments is text else lines_of(without_comments)
    summary = documenting(lines, masked_lines, 0) if language.syntax == "python" else ""
    summary = summary or at_head(lines, masked_lines)
    if language.role != "code" or is_generated(text):
        return _entry(path, lines, summary, language), []
    definitions = definitions_in(without_comments, masked_lines, language, [])
    imports = find_imports(text, lines, masked_lines, language.name)
    outer = [one.name for one in definitions if "." not in one.name]
    own = _entry(path, lines, summary, language, defines=outer, imports=imports)
    return own, list(code_entries(path, language.name, definitions, lines, masked_lines))


def _entry(
    path: str,
    lines: Sequence[str],
    summary: str,
    language: Language,
    *,
    defines: Sequence[str] = (),
    imports: Sequence[str] = (),
) -> SurveyEntry:
    text = text_of("file", path, path, summary, language.name, ("defines", defines), ("imports", imports))
    return SurveyEntry("file", path, 1, max(1, len(lines)), text)


def _beginning(lines: Sequence[str]) -> str:
    """Return the first paragraph of prose, its title included."""
    said: list[str] = []
    for line in lines[:_PROSE_BEGINNING_LINES]:
        words = _MARKS.sub("", line.strip())
        if words:
            said.append(words)
        elif len(said) > 1:
            break
    return " ".join(said)


def _longest(entries: list[SurveyEntry], most: int) -> list[SurveyEntry]:
    """Return the entries by line; of too many the longest."""
    if len(entries) <= most:
        return entries
    longest = sorted(entries, key=lambda one: (-one.lines, one.first))[:most]
    return sorted(longest, key=lambda one: one.first)
