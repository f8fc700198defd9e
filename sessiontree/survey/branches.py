"""Branches: about how complex the functions of languages without a syntax tree are.

A function's complexity is taken to be one more than the branching words and operators on its lines, outside
comments and strings, those of functions inside it left out. That is an approximation: a word may be another
thing's name, a macro may hide a branch, and two functions that share a line share its branches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache

from sessiontree.survey.definitions import Definition

# between blanks a question mark is a conditional expression; elsewhere it marks what may be missing
_TERNARY = r"|(?<=\s)\?(?=\s)(?!\s+(?:extends|super)\b)"
_AND_OR = r"|&&|\|\|"
_C = r"\b(?:(?<!#)if|for|foreach|while|case|catch)\b" + _AND_OR + _TERNARY
_ARMS = r"\b(?:if|for|while|catch)\b|=>|(?<=\w )(?:&&|\|\|)|(?<=[)\]] )(?:&&|\|\|)"
_RUBY = r"(?<![.:])\b(?:if|elsif|unless|while|until|for|when|rescue|and|or)\b(?!:)" + _AND_OR
_PYTHON = r"\b(?:if|elif|for|while|except|and|or)\b"
_SHELL = r"\b(?:if|elif|for|while|until)\b|;;|" + _AND_OR[1:]
_NOT_ENDED = r"(?i:(?<!end )(?<!exit )\b(?:if|elsif|elseif|for|foreach|while|until|when|case|and|or)\b)"

_PATTERNS: dict[str, str] = {
    **dict.fromkeys(("Python", "Cython", "Starlark", "GDScript", "Nim"), _PYTHON),
    **dict.fromkeys(("Rust", "Zig"), _ARMS),
    **dict.fromkeys(("Ruby", "Crystal", "Elixir"), _RUBY),
    **dict.fromkeys(
        ("C", "C++", "C#", "CUDA", "Java", "Dart", "D", "Groovy", "Objective-C", "GLSL", "HLSL", "Metal"), _C
    ),
    **dict.fromkeys(("Arduino", "JavaScript", "TypeScript", "Vue", "Svelte", "Solidity", "Go"), _C),
    **dict.fromkeys(("Scala", "Awk", "R", "Verilog", "CoffeeScript"), _C),
    "Swift": _C.replace("catch", "catch|guard"),
    "Kotlin": _C.replace("catch", "catch|when"),
    "PHP": _C.replace("catch", "catch|elseif|and|or"),
    "Perl": _RUBY + _TERNARY,
    "PowerShell": r"(?i:\b(?:if|elseif|for|foreach|while|catch)\b|(?<!\w)-(?:and|or)\b)",
    "Shell": _SHELL,
    "Lua": r"\b(?:if|elseif|for|while|until|and|or)\b",
    "Julia": r"(?<!\.)\b(?:if|elseif|for|while|catch)\b" + _AND_OR + _TERNARY,
    **dict.fromkeys(("Fortran", "Ada", "VHDL", "Pascal", "Visual Basic", "MATLAB"), _NOT_ENDED),
}
"""What branches, per language. Languages that branch by patterns or by functions are not here."""


@cache
def _pattern_of(language: str) -> re.Pattern[str] | None:
    pattern = _PATTERNS.get(language)
    return None if pattern is None else re.compile(pattern)


def with_branches(
    definitions: Sequence[Definition], masked_lines: Sequence[str], language: str, max_line_chars: int
) -> tuple[Definition, ...]:
    """Return the definitions, each function with its complexity; as they are where the language has none.

    Args:
        definitions: By line.
        masked_lines: The file's lines without comments and strings, see ``syntax.masked``.
        language: The language's name.
        max_line_chars: Longer lines are generated text and not looked at.

    Contract: pure; linear in the lines' length and the number of definitions.
    """
    pattern = _pattern_of(language)
    if pattern is None or not definitions:
        return tuple(definitions)
    branches = [0] * len(definitions)
    for owner, first, end in _own_lines(definitions):
        for line in masked_lines[first - 1 : end]:
            if len(line) <= max_line_chars:
                branches[owner] += sum(1 for _ in pattern.finditer(line))
    return tuple(
        replace(one, complexity=1 + count) if one.kind == "function" else one
        for one, count in zip(definitions, branches, strict=True)
    )


def _own_lines(definitions: Sequence[Definition]) -> Iterable[tuple[int, int, int]]:
    """Yield stretches of lines (first, last) with the number of the innermost definition around each."""
    inside: list[int] = []
    line = 0  # everything before it has been told
    for number, one in enumerate(definitions):
        while inside and definitions[inside[-1]].end_line < one.line:
            owner = inside.pop()
            end = definitions[owner].end_line
            if line <= end:
                yield owner, line, end
                line = end + 1
        if inside and line < one.line:
            yield inside[-1], line, one.line - 1
        line = max(line, one.line)
        inside.append(number)
    while inside:
        owner = inside.pop()
        end = definitions[owner].end_line
        if line <= end:
            yield owner, line, end
            line = end + 1
