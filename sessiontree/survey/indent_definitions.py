"""Indent definitions: functions and classes whose bodies are indented deeper than their first line."""

from __future__ import annotations

import re

from sessiontree.survey.definitions import MAX_NAME_CHARS, Definition, DefinitionKind, qualified
from sessiontree.survey.lines import LineIndex
from sessiontree.survey.syntax import STRING_LINE

_MAX_HEAD_LINES = 50
_CLOSING = re.compile(r"(?i:end\w*\b|\}|\)|\])")


def indent_definitions(masked: str, lines: re.Pattern[str]) -> tuple[Definition, ...]:
    """Return the functions and classes of a text without comments and strings, by line.

    A definition's head goes on until its brackets are closed. It ends before the next line indented no deeper
    than itself, or with that line where it closes a block, such as ``end``. Lines inside strings end nothing.

    Contract: pure; linear in the text's length but for the sort. A tab counts as one column.
    """
    masked_lines = masked.split("\n")
    index = LineIndex(masked_lines)
    found: dict[int, tuple[DefinitionKind, str]] = {}
    for match in lines.finditer(masked):
        group = match.lastgroup or ""
        kind: DefinitionKind = "class" if group == "class" else "function"
        found.setdefault(index.line_of(match.start(group)), (kind, match[group][:MAX_NAME_CHARS]))
    return qualified(_with_ends(masked_lines, found)) if found else ()


def _with_ends(masked_lines: list[str], found: dict[int, tuple[DefinitionKind, str]]) -> list[Definition]:
    ended: list[Definition] = []
    waiting: list[tuple[int, int]] = []  # indent and line of definitions whose end is not seen yet
    last_filled = 0
    unclosed = 0  # round and square brackets a definition's head has opened
    head_end = 0

    def end(line: int, end_line: int) -> None:
        kind, name = found[line]
        ended.append(Definition(kind, name, line, max(line, end_line)))

    for number, line in enumerate(masked_lines, start=1):
        content = line.lstrip()
        if not content:
            continue
        if unclosed > 0 and number <= head_end:
            unclosed += _opened(content)
            last_filled = number
            continue
        if not content.startswith(STRING_LINE):
            indent = len(line) - len(content)
            while waiting and waiting[-1][0] >= indent:
                depth, opened = waiting.pop()
                closes = depth == indent and _CLOSING.match(content) is not None
                end(opened, number if closes else last_filled)
            if number in found:
                waiting.append((indent, number))
                unclosed, head_end = _opened(content), number + _MAX_HEAD_LINES
        last_filled = number
    for _, opened in waiting:
        end(opened, last_filled)
    return ended


def _opened(line: str) -> int:
    return line.count("(") + line.count("[") - line.count(")") - line.count("]")
