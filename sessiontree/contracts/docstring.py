"""Docstrings in Google style, as far as a tool needs them: what it does, and what its parameters mean."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

_ARGUMENTS = frozenset({"Args:", "Arguments:"})
_SECTIONS = _ARGUMENTS | {"Returns:", "Return:", "Raises:", "Yields:"}
_ENTRY = re.compile(r"(?P<name>[^\W\d]\w*)(?:\s*\(.*?\))?\s*:\s*(?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Docstring:
    """What a docstring says."""

    description: str
    """The text before the first section, paragraphs kept."""
    parameters: dict[str, str]
    """Parameter to its description on one line, in the order written."""


def read_docstring(text: str) -> Docstring:
    """Return what a docstring says; a text without sections is all description."""
    before: list[str] = []
    arguments: list[str] = []
    section = ""
    for line in inspect.cleandoc(text).splitlines():
        if line.rstrip() in _SECTIONS:
            section = line.rstrip()
        elif not section:
            before.append(line)
        elif section in _ARGUMENTS:
            if line and not line[0].isspace():
                section = "other text"
            else:
                arguments.append(line)
    return Docstring("\n".join(before).strip(), dict(_entries(arguments)))


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield name and description of each entry; lines indented deeper than the first continue an entry."""
    margin = next((_indent(line) for line in lines if line.strip()), 0)
    name, words = "", list[str]()
    for line in lines:
        entry = _ENTRY.fullmatch(line.strip()) if line.strip() and _indent(line) <= margin else None
        if entry:
            if name:
                yield name, " ".join(words)
            name, words = entry["name"], entry["text"].split()
        else:
            words += line.split()
    if name:
        yield name, " ".join(words)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
