"""Comments: what a file, or the text above or below a definition's first line, says it is about.

Only first paragraphs count: what follows is detail. Works on lines alone, without a syntax tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_MAX_LINES = 40
_HEAD_LINES = 80
_OPENING = re.compile(
    r"^(?:/\*+!?|\*+/|\*+(?=\s|$)|//+[/!]?|#+[:!]?|--+\[*|;+|%+|\(\*+|<!--+|\{-+\|?|'|!+<?|rem\b)\s?"
)
_CLOSING = re.compile(r"\s*(?:\*+/|-->|-\}|\*\)|\]\])\s*$")
_DETAIL = re.compile(r"[@\\:](?:param|return|returns|throws|type|arg|brief|see|since)\b|-{3,}|={3,}")
_LEGAL = re.compile(r"(?i)copyright|licen[cs]e|spdx|all rights reserved|^!|coding[:=]")
_ANNOTATION = re.compile(r"@|#\[|\[[A-Z]|template\s*<|\)")
_DOCSTRING = re.compile(r'[rRuUbB]{0,2}("""|\'\'\'|"|\')')


def above(lines: Sequence[str], masked_lines: Sequence[str], line: int) -> str:
    """Return the first paragraph of the comment directly above a line, annotations passed over.

    Args:
        lines: As they stand.
        masked_lines: The same without comments, see ``syntax.masked``.
        line: The definition's, from 1.
    """
    at = line - 2
    lowest = max(-1, at - _MAX_LINES)
    while at > lowest and _ANNOTATION.match(masked_lines[at].lstrip()):
        at -= 1
    end = at
    while at > lowest and lines[at].strip() and not masked_lines[at].strip():
        at -= 1
    return first_paragraph(lines[at + 1 : end + 1])


def documenting(lines: Sequence[str], masked_lines: Sequence[str], after: int) -> str:
    """Return the first paragraph of the string that is the first statement after a line, if one is.

    Args:
        lines: As they stand.
        masked_lines: The same without comments and with emptied strings.
        after: Last line of a definition's head, from 1; 0 = the file's beginning.
    """
    at = after
    end = min(len(lines), after + _MAX_LINES)
    while at < end and not masked_lines[at].strip():
        at += 1
    if at >= end or not masked_lines[at].lstrip(" \trRuU").startswith('""'):
        return ""
    opening = _DOCSTRING.match(lines[at].lstrip())
    if opening is None:
        return ""
    quote = opening[1]
    said: list[str] = []
    rest = lines[at].lstrip()[opening.end() :]
    for number in range(at, end):
        if number > at:
            rest = lines[number]
        text, closed, _ = rest.partition(quote)
        if said and not text.strip():
            break
        if text.strip():
            said.append(text.strip())
        if closed:
            break
    return " ".join(said)


def at_head(lines: Sequence[str], masked_lines: Sequence[str]) -> str:
    """Return the first paragraph of a file's first comment that is about the file, not about its licence."""
    block: list[str] = []
    head = min(len(lines), _HEAD_LINES)
    for number in range(head + 1):
        in_comment = number < head and lines[number].strip() != "" and not masked_lines[number].strip()
        if in_comment:
            block.append(lines[number])
            continue
        if block and not any(map(_LEGAL.search, map(_bare, block))):
            said = first_paragraph(block)
            if said:
                return said
        block = []
        if number < head and masked_lines[number].strip():
            break
    return ""


def first_paragraph(lines: Iterable[str]) -> str:
    """Return the first paragraph of a comment's lines without what marks them as a comment."""
    said: list[str] = []
    for line in lines:
        bare = _bare(line)
        if said and (not bare or _DETAIL.match(bare)):
            break
        if bare and not _DETAIL.fullmatch(bare):
            said.append(bare)
    return " ".join(said)


def _bare(line: str) -> str:
    return _CLOSING.sub("", _OPENING.sub("", line.strip())).strip()
