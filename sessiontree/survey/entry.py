"""Entry: what memory keeps of one definition, section or file, as text that words and likeness both find.

Everything in it but its own labels comes from the surveyed file, and nobody vouches for that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from sessiontree.survey.identifiers import has_inner_words, words_of

EntryKind: TypeAlias = Literal["function", "class", "file", "section"]

MAX_TEXT_CHARS = 800
"""Longest text of an entry."""
MAX_SUMMARY_CHARS = 300
_MAX_SIGNATURE_CHARS = 200
_MAX_LIST_CHARS = 160
_ELLIPSIS = "…"


@dataclass(frozen=True, slots=True)
class SurveyEntry:
    """One place worth finding again."""

    kind: EntryKind
    name: str
    """Qualified, such as ``Cache.get``; of a section its headings; of a file its path."""
    first: int
    """First line, from 1."""
    last: int
    """Last line, inclusive."""
    text: str
    """What is remembered; its first line is :func:`title`, its second the summary."""

    @property
    def lines(self) -> int:
        """How many lines it has."""
        return self.last - self.first + 1


def title(kind: EntryKind, name: str, path: str) -> str:
    """Return the first line of an entry's text."""
    return f"{kind} {name}" if kind == "file" else f"{kind} {name} in {path}"


def text_of(
    kind: EntryKind,
    name: str,
    path: str,
    summary: str,
    signature: str = "",
    *lists: tuple[str, Iterable[str]],
    max_summary_chars: int = MAX_SUMMARY_CHARS,
) -> str:
    """Return an entry's text: title, summary, the words of its name, signature, and lists with their labels.

    Each part is one line and is cut by itself; a list keeps the first names that fit.
    """
    lines = [title(kind, name, path), _line(summary, max_summary_chars)]
    if has_inner_words(name):
        lines.append(_line(" ".join(dict.fromkeys(words_of(name))), _MAX_LIST_CHARS))
    if signature:
        lines.append(_line(signature, _MAX_SIGNATURE_CHARS))
    for label, names in lists:
        listed = _listed(names)
        if listed:
            lines.append(f"{label} {listed}")
    return "\n".join(lines)[:MAX_TEXT_CHARS]


def summary_of(text: str) -> str:
    """Return what an entry's text says it is about; empty where its file says nothing."""
    lines = text.split("\n", 2)
    return lines[1] if len(lines) > 1 else ""


def named_in(text: str, path: str) -> tuple[str, str]:
    """Return kind and name of an entry's text; two empty texts where it is none."""
    first = text.partition("\n")[0]
    kind, _, rest = first.partition(" ")
    if kind == "file":
        return kind, rest
    name = rest.removesuffix(f" in {path}")
    return (kind, name) if kind in {"function", "class", "section"} and name != rest else ("", "")


def _line(text: str, max_chars: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= max_chars else line[: max_chars - 1] + _ELLIPSIS


def _listed(names: Iterable[str]) -> str:
    shown: list[str] = []
    left = _MAX_LIST_CHARS
    for name in names:
        left -= len(name) + 2
        if left < 0:
            break
        shown.append(name)
    return ", ".join(shown)
