"""Records: what memory keeps of each definition, section and file, and the lines that answer a question.

A record's text is foreign: all but its labels comes from the surveyed file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal

from sessiontree.survey.source.languages import find_role
from sessiontree.survey.source.question import find_translated_language, name_words
from sessiontree.survey.source.source import SourceFile, split_lines
from sessiontree.survey.source.symbols import Symbol

CODE_TYPE: Final = "fact"
"""Type of the records of definitions in a project's own code; they are asked for first."""
OTHER_TYPE: Final = "free"
"""Type of all other records: tests, documents, settings."""
MAX_FILE_RECORDS = 200
"""Most records of one file."""
MAX_TEXT_CHARS = 1_600
_SUMMARY_CHARS = 300
_LINE_CHARS = 500
_PROSE_CHARS = 700
EXCERPT_LINES = 24
"""Most lines of an excerpt."""
_HEAD_LINES = 8
"""Most lines of a signature; most of its documentation as well."""

_AUDIENCES = {
    "history": r"(?i)(?:^|/)(?:changelog|changes|history|news|releases?|release-notes)(?:\.\w+|/|$)",
    "test": r"(?:^|/)(?:tests?|testing|__tests__|spec|testdata|fixtures)/"
    r"|(?:^|/)(?:test_[^/]*|conftest)\.py$|[._-](?:test|spec|tests)\.\w+$|_test\.\w+$",
    "example": r"(?:^|/)(?:examples?|samples?|demos?|bench(?:marks?)?|playground)(?:/|\.)|(?:^|/)play\.\w+$",
}
_IN_TESTS = re.compile(r"(?:^|\.)(?:tests?|Tests?)\.")
_MD_HEADING = re.compile(r"^(#{1,6})\s+(\S.*)$")
_RST_LINE = re.compile(r"^([=\-~^\"'`*+#:.])\1{2,}\s*$")
_KINDS = ("function", "class", "constant", "section", "file")
_SOURCE = re.compile(r"(.+)#L(\d+)(?:-L(\d+))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SurveyEntry:
    """One place worth finding again: a record of memory, with or without what it was made from."""

    path: str
    kind: str
    """``function``, ``class``, ``constant``, ``section`` or ``file``."""
    name: str
    """Qualified name; headings of a section; path of a file."""
    first: int
    last: int
    summary: str
    """The beginning of what its file says about it."""
    signature: str = ""
    more: str = ""
    """The rest of its documentation, and what its body says."""
    calls: str = ""
    words: str = ""
    """The words of its name and path, to be found by."""
    symbol: Symbol | None = None

    @property
    def text(self) -> str:
        """What is remembered, one member a line."""
        members = (self.summary, self.signature, self.more, self.calls, self.words)
        return "\n".join((f"{self.kind} {self.name} in {self.path}", *members))[:MAX_TEXT_CHARS]

    @property
    def source(self) -> str:
        """Where it is, as memory keeps it: ``src/app.py#L3-L9``."""
        return f"{self.path}#L{self.first}" + (f"-L{self.last}" if self.last > self.first else "")

    @property
    def type(self) -> Literal["fact", "free"]:
        """The type under which memory keeps it."""
        is_code = self.kind not in ("section", "file") and determine_audience(self.path, self.name) == "code"
        return CODE_TYPE if is_code else OTHER_TYPE


def parse_entry(text: str, source: str) -> SurveyEntry | None:
    """Return the entry that a record was made from; None for a record that no survey made."""
    place = _SOURCE.fullmatch(source)
    header, *members = text.split("\n")
    kind, _, named = header.partition(" ")
    # Other sessions put records into the same memory; one that only looks similar must not be taken for a
    # survey's.
    if place is None or kind not in _KINDS or not named.endswith(f" in {place[1]}"):
        return None
    name = named.removesuffix(f" in {place[1]}")
    first, last = int(place[2]), int(place[3] or place[2])
    summary, signature, more, calls, words = [*members, "", "", "", "", ""][:5]
    return SurveyEntry(place[1], kind, name, first, last, summary, signature, more, calls, words)


def determine_audience(path: str, name: str = "") -> str:
    """Return whom a file is for: ``code``, ``test``, ``example`` or ``history``."""
    for audience, pattern in _AUDIENCES.items():
        if re.search(pattern, path) or (audience == "test" and _IN_TESTS.search(name)):
            return audience
    return "code"


def collect_entries(file: SourceFile) -> tuple[list[SurveyEntry], int]:
    """Return what memory is to keep of a file, by line, and how many entries were left out."""
    if not file.text.strip() or not file.path.isprintable():
        return [], 0
    role = find_role(file.language)
    found = [_make_symbol_entry(file.path, one) for one in file.symbols.symbols]
    if role == "prose":
        found = list(_read_sections(file))
    if role != "code" and not found:
        found = [_make_file_entry(file, " ".join(file.text[: 2 * _PROSE_CHARS].split())[:_PROSE_CHARS])]
    elif file.symbols.doc:
        found.append(_make_file_entry(file, file.symbols.doc))
    # The longest are kept, and constants last: a file of tables would otherwise use up all the room.
    kept = sorted(found, key=lambda one: (one.kind == "constant", one.first - one.last))[:MAX_FILE_RECORDS]
    return sorted(kept, key=lambda one: (one.first, -one.last)), len(found) - len(kept)


def _make_symbol_entry(path: str, symbol: Symbol) -> SurveyEntry:
    place = (symbol.kind, symbol.name, symbol.first, symbol.last)
    said, _, rest = symbol.doc.partition("\n\n")
    summary, signature = _to_one_line(said, _SUMMARY_CHARS), _to_one_line(symbol.signature, _LINE_CHARS)
    more = _to_one_line(f"{rest} {symbol.words}", _LINE_CHARS)
    calls = _to_one_line(" ".join(symbol.calls), _LINE_CHARS)
    words = " ".join(
        dict.fromkeys([*name_words(symbol.name), *name_words(path), find_translated_language(path)])
    )
    return SurveyEntry(path, *place, summary, signature, more, calls, words, symbol)


def _make_file_entry(file: SourceFile, about: str) -> SurveyEntry:
    said, _, rest = about.partition("\n\n")
    summary, more = _to_one_line(said, _SUMMARY_CHARS), _to_one_line(rest, _LINE_CHARS)
    path, words = file.path, " ".join(name_words(file.path))
    return SurveyEntry(path, "file", path, 1, max(1, file.totals.lines), summary, more=more, words=words)


def _read_sections(file: SourceFile) -> Iterator[SurveyEntry]:
    lines = split_lines(file.text)
    headings = list(_find_headings(lines, is_rst=file.language == "reStructuredText"))
    around: list[tuple[int, str]] = []
    for place, (line, level, heading) in enumerate(headings):
        while around and around[-1][0] >= level:
            around.pop()
        around.append((level, heading))
        last = headings[place + 1][0] - 1 if place + 1 < len(headings) else len(lines)
        body = " ".join(" ".join(lines[line:last]).split())
        if body:
            name = " / ".join(title for _, title in around)
            more = body[_SUMMARY_CHARS : _SUMMARY_CHARS + _PROSE_CHARS]
            words = " ".join(name_words(file.path))
            summary = _to_one_line(body, _SUMMARY_CHARS)
            yield SurveyEntry(file.path, "section", name, line, last, summary, more=more, words=words)


def _find_headings(lines: list[str], *, is_rst: bool) -> Iterator[tuple[int, int, str]]:
    """Yield line, level and text of each heading; levels of reStructuredText go by first use."""
    styles: list[str] = []
    is_fenced = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith(("```", "~~~")):
            is_fenced = not is_fenced
        if is_fenced:
            continue
        if not is_rst and (found := _MD_HEADING.match(line)) is not None:
            title = found[2].rstrip()
            yield number, len(found[1]), (title.rstrip("#").rstrip() or title)[:120]
        elif is_rst and number > 1 and (under := _RST_LINE.match(line)) is not None:
            title = lines[number - 2].strip()
            if title and _RST_LINE.match(title) is None and len(line.rstrip()) >= len(title):
                if under[1] not in styles:
                    styles.append(under[1])
                yield number - 1, styles.index(under[1]) + 1, title[:120]


def _to_one_line(text: str, max_chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def build_excerpt(file: SourceFile, entry: SurveyEntry) -> list[tuple[int, str]]:
    """Return the lines of a place that answer: signature, documentation, and the body abridged.

    Of a class, the first lines of its members stand for the body. Of a file of code, only what it says of
    itself is shown, never its imports.

    Returns:
        Line number from 1, and text; numbers ascend, and where they jump, lines were left out.
    """
    symbol = entry.symbol
    if symbol is None:
        last = min(entry.last, entry.first + _HEAD_LINES - 1)
        if entry.kind == "file" and file.symbols.doc:
            last = min(last, entry.first + file.symbols.doc.count("\n") + 2)
        return _number_lines(file, range(entry.first, last + 1))
    head_end = min(max(symbol.first, symbol.body - 1), symbol.last)
    wanted = list(range(symbol.first, min(head_end, symbol.first + 2 * _HEAD_LINES - 1) + 1))
    if symbol.kind == "class" and symbol.lines > EXCERPT_LINES:
        inside = (one for one in file.symbols.symbols if symbol.first < one.first and one.last <= symbol.last)
        wanted += [one.first for one in inside]
    else:
        wanted += range(head_end + 1, symbol.last + 1)
    return _number_lines(file, list(dict.fromkeys(wanted))[:EXCERPT_LINES])


def _number_lines(file: SourceFile, numbers: Iterable[int]) -> list[tuple[int, str]]:
    lines = split_lines(file.text)
    shown = [(number, lines[number - 1]) for number in numbers if 1 <= number <= len(lines)]
    while shown and not shown[-1][1].strip():
        shown.pop()
    return shown


def find_nearest_entry(entries: Iterable[SurveyEntry], sought: SurveyEntry) -> SurveyEntry | None:
    """Return the entry of the same kind and name that is nearest to its line; None if a file has none."""
    same = [one for one in entries if (one.kind, one.name) == (sought.kind, sought.name)]
    return min(same, key=lambda one: abs(one.first - sought.first), default=None)
