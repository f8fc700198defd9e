"""Code entries: what memory keeps of each function and class of a file, read from its lines.

Heads, comments and documenting strings are found in the text itself, so that files which don't parse, and
languages without a parser, have entries too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from sessiontree.survey.comments import above, documenting
from sessiontree.survey.definitions import Definition
from sessiontree.survey.entry import SurveyEntry, text_of

_MAX_HEAD_LINES = 12
_MAX_BODY_LINES = 40
_MAX_NAMES = 12
_CALL = re.compile(r"(?<![\w@])([A-Za-z_]\w{3,60}+)(?=\()")
_RAISE = re.compile(r"\b(?:raise|throw(?:\s+new)?)\s+(?:\w+(?:\.|::))*([A-Za-z_]\w{2,60}+)")
_WORDS_BEFORE_BRACKETS = """
    catch elif elsif except foreach func function import lambda match print raise return sizeof super switch
    throw typeof until unless while with yield isinstance
"""
_STATEMENTS = frozenset(_WORDS_BEFORE_BRACKETS.split())
_INDENTED = frozenset(("Python", "Cython", "Starlark", "GDScript"))


def code_entries(
    path: str,
    language: str,
    definitions: Sequence[Definition],
    lines: Sequence[str],
    masked_lines: Sequence[str],
) -> Iterator[SurveyEntry]:
    """Yield an entry per definition, by line.

    Args:
        path: The file's.
        language: The language's name.
        definitions: By line, those inside a class with its name before theirs.
        lines: As they stand.
        masked_lines: The same without comments and with emptied strings, see ``syntax.masked``.

    Contract: pure; linear in the number of definitions, of each at most 40 lines are looked at.
    """
    members = _members(definitions)
    for one in definitions:
        head_end = _end_of_head(masked_lines, one)
        summary = ""
        if language in _INDENTED:
            summary = documenting(lines, masked_lines, head_end)
        if not summary:
            summary = above(lines, masked_lines, one.line)
        signature = " ".join(map(str.strip, lines[one.line - 1 : head_end])).rstrip(" {:;")
        body = "\n".join(masked_lines[head_end : min(one.end_line, head_end + _MAX_BODY_LINES)])
        lists: list[tuple[str, Iterable[str]]] = [("has", members.get(one.name, ()))]
        if one.kind == "function":
            lists = [("raises", _names(_RAISE, body)), ("calls", _names(_CALL, body))]
        # a name with parameters of its type may stand on several lines
        name = " ".join(one.name.split())
        text = text_of(one.kind, name, path, summary, signature, *lists)
        yield SurveyEntry(one.kind, name, one.line, one.end_line, text)


def _members(definitions: Sequence[Definition]) -> dict[str, list[str]]:
    """Return the names of what stands in each class, by line."""
    members: dict[str, list[str]] = {one.name: [] for one in definitions if one.kind == "class"}
    for one in definitions:
        around, _, name = one.name.rpartition(".")
        if around in members:
            members[around].append(name)
    return members


def _end_of_head(masked_lines: Sequence[str], definition: Definition) -> int:
    """Return the last line of a definition's head: where its brackets are closed again."""
    depth = 0
    last = min(definition.end_line, definition.line + _MAX_HEAD_LINES - 1, len(masked_lines))
    for number in range(definition.line, last + 1):
        line = masked_lines[number - 1]
        depth += line.count("(") + line.count("[") - line.count(")") - line.count("]")
        if depth <= 0:
            return number
    return definition.line


def _names(pattern: re.Pattern[str], body: str) -> Iterable[str]:
    """Return the names a pattern finds, each once, in order."""
    names: dict[str, None] = {}
    for name in pattern.findall(body):
        if name not in _STATEMENTS:
            names[name] = None
            if len(names) == _MAX_NAMES:
                break
    return names
