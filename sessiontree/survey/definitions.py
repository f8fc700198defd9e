"""Definitions: functions and classes, where they stand and how long they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Literal, TypeAlias

DefinitionKind: TypeAlias = Literal["function", "class"]

MAX_NAME_CHARS = 120
"""Longest name kept; generated code has longer ones."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One function or class; a class is anything that groups members: struct, interface, module, message."""

    kind: DefinitionKind
    name: str
    """Inside a class with the class's name before it, such as ``Cache.get``."""
    line: int
    """First line, from 1; decorators and comments above do not count."""
    end_line: int
    """Last line; the first one where the end could not be found."""
    complexity: int = 0
    """Of a function: its decisions and one more; 0 for a class, and where the survey can't count them."""

    @property
    def lines(self) -> int:
        """Length in lines, at least 1."""
        return self.end_line - self.line + 1


def qualified(definitions: Iterable[Definition]) -> tuple[Definition, ...]:
    """Return the definitions by line, each inside a class renamed to ``Class.name``.

    Contract: stable for definitions that share a line; O(n log n).
    """
    enclosing: list[Definition] = []
    renamed = []
    for definition in sorted(definitions, key=attrgetter("line")):
        while enclosing and enclosing[-1].end_line < definition.line:
            enclosing.pop()
        around = enclosing[-1] if enclosing else definition
        if around.line < definition.line and definition.end_line <= around.end_line:
            name = f"{around.name}.{definition.name}"
            definition = replace(definition, name=name[:MAX_NAME_CHARS])
        if definition.kind == "class":
            enclosing.append(definition)
        renamed.append(definition)
    return tuple(renamed)
