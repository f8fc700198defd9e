"""Brace definitions: functions and classes of languages whose bodies stand in curly brackets.

Two ways to find one: a line that a keyword announces (``definition_patterns.py``), and, where no keyword
does, the text before a brace. Either way the brace's partner tells the end.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from sessiontree.survey.brackets import Brackets, brackets_of, without_directives
from sessiontree.survey.definition_patterns import HEADED, METHODS
from sessiontree.survey.definitions import MAX_NAME_CHARS, Definition, DefinitionKind, qualified
from sessiontree.survey.lines import LineIndex

_MAX_HEADER_CHARS = 1500
_MAX_NAME_SEARCH = 200
_WITH_DIRECTIVES = HEADED - {"Java", "Dart", "D", "Groovy"}
_FLAT = frozenset(("C", "C++", "CUDA", "GLSL", "HLSL", "Metal", "Arduino"))

_CLASS = re.compile(
    r"(?<![\w.@$])(class|struct|union|interface|enum|record|trait|@interface|extension|mixin)"
    r"\s++(?:(?:class|struct)\s++)?([\w$]++(?:\s++[\w$]++)?)(?!\s*+[,>=.])"
)
_NOT_A_NAME = frozenset(("extends", "implements", "final", "permits", "where", "on", "sealed", "with"))
_NAME = re.compile(r"(operator\s*[^\s\w(]{1,3}|(?:[\w$]+(?:<[^<>]*>)?::)*~?[\w$]+)\s*(?:<[^<>(){}]*>\s*)?$")
_TAIL = re.compile(
    r"\s*(?:(?:const|noexcept|override|final|volatile|async|sync|nothrow|pure|[A-Z][A-Z_]+)\b\s*|[&*]\s*)*"
    r"(?:(?:throws\b|->|:|where\b|requires\b)[^()=;]*)?"
)
# what follows a parameter list and may hold round brackets itself: initialisers, a trailing return type
_AFTER_PARAMETERS = re.compile(r"\)\s*(?:(?:const|noexcept|mutable|override)\b\s*)*(:(?!:)|->)")
_GO_TYPE = re.compile(r"\b(?:interface|struct)\s*$")
_METHOD_START = re.compile(
    r"[ \t]*(?:(?:async|static|get|set|public|private|protected|readonly|override|abstract)\b[ \t]*+)*"
    r"[*#]?[ \t]*"
)
_ACCESS_LABEL = re.compile(r"\b(?:public|private|protected|signals|slots)\s*:\s*$")
_LAST_WORD = re.compile(r"(\w+)\s*$")
_STATEMENT_WORDS = """
    if for while switch catch using lock fixed foreach synchronized try with unless until elsif elseif else do
    return sizeof typeof new function when match loop guard select await throw delete and or not assert repeat
    defined alignas decltype static_assert extern
"""
_STATEMENTS = frozenset(_STATEMENT_WORDS.split())
_WORDS_BEFORE_CALLS = """
    new return throw else case await yield in is as delete goto do and or not typeof sizeof co_return
"""
_NO_TYPE = frozenset(_WORDS_BEFORE_CALLS.split())


def brace_definitions(masked: str, language: str, lines: re.Pattern[str] | None) -> tuple[Definition, ...]:
    """Return the functions and classes of a text without comments and strings, by line.

    Args:
        masked: See ``syntax.masked``.
        language: Its name, which decides about text before braces.
        lines: The language's line patterns, if it has any.

    Contract: pure; linear in the text's length but for the sort.
    """
    if language in _WITH_DIRECTIVES:
        masked = without_directives(masked)
    text = _BracedText(masked, language)
    if lines is not None:
        text.find_announced(lines)
    if language in HEADED or language in METHODS:
        text.find_headed()
    return qualified(text.definitions)


class _BracedText:
    """One text, its brackets, and what was found in it so far."""

    def __init__(self, masked: str, language: str) -> None:
        self.masked = masked
        self.language = language
        self.brackets: Brackets = brackets_of(masked)
        self.index = LineIndex(masked.split("\n"))
        self.curly = list(self.brackets.header)
        self.bodies: dict[int, DefinitionKind] = {}
        self.definitions: list[Definition] = []

    def find_announced(self, lines: re.Pattern[str]) -> None:
        """Find what line patterns announce."""
        found = list(lines.finditer(self.masked))
        limits = [match.start() for match in found[1:]] + [len(self.masked)]
        for match, limit in zip(found, limits, strict=False):
            group = match.lastgroup or ""
            kind: DefinitionKind = "class" if group == "class" else "function"
            name = match[group]
            if group == "method":
                name = f"{match['owner']}.{name}"
            self._add(kind, name, match.start(group), self._body(group, match.end(group), limit))

    def find_headed(self) -> None:
        """Find what the text before braces announces, outer braces first."""
        for brace, start in self.brackets.header.items():
            if brace not in self.bodies:
                found = self._headed(start, brace)
                if found is not None:
                    kind, name, offset = found
                    body = self._past_initialisers(brace) if kind == "function" else brace
                    self._add(kind, name, offset, body)

    def _add(self, kind: DefinitionKind, name: str, offset: int, brace: int | None) -> None:
        line = self.index.line_of(offset)
        end_line = line
        if brace is not None:
            self.bodies[brace] = kind
            if brace in self.brackets.partner:
                end_line = self.index.line_of(self.brackets.partner[brace])
        self.definitions.append(Definition(kind, name[:MAX_NAME_CHARS], line, end_line))

    def _body(self, group: str, offset: int, limit: int) -> int | None:
        """Return the brace that opens the body of what is named just before ``offset``."""
        brackets = self.brackets
        brace = self._next(self.curly, offset)
        parameters = self._next(brackets.rounds, offset)
        if parameters is not None and (brace is None or parameters < brace):
            offset = brackets.partner.get(parameters, offset)
            brace = self._next(self.curly, offset)
        if self.language == "Go" and group != "class":
            brace = self._past_types(brace)
        if brace is None or brace >= limit or brace - offset > _MAX_HEADER_CHARS:
            return None
        gap = self.masked[offset:brace]
        if ";" in gap:
            return None
        # what is an expression on its own line has no body; the brace belongs to the next statement
        # (Rust has no such thing, but `=` in its bounds)
        expression = self.language != "Rust" and "=" in gap.replace("=>", "") and "\n" in gap.strip()
        return None if expression else brace

    def _past_types(self, brace: int | None) -> int | None:
        """Return the first brace from this one on that is not part of a type such as ``interface{}``."""
        while brace is not None and _GO_TYPE.search(self.masked, max(0, brace - 12), brace):
            brace = self._next(self.curly, self.brackets.partner.get(brace, len(self.masked)))
        return brace

    def _past_initialisers(self, brace: int) -> int:
        """Return the first brace from this one on that does not initialise a member, as in ``: a_{1} {``."""
        while self.masked[brace - 1].isalnum() or self.masked[brace - 1] == "_":
            following = self._next(self.curly, self.brackets.partner.get(brace, len(self.masked)))
            if following is None or ";" in self.masked[brace:following]:
                break
            brace = following
        return brace

    @staticmethod
    def _next(offsets: list[int], offset: int) -> int | None:
        place = bisect_left(offsets, offset)
        return offsets[place] if place < len(offsets) else None

    def _headed(self, start: int, brace: int) -> tuple[DefinitionKind, str, int] | None:
        start = max(start, brace - _MAX_HEADER_CHARS)
        header = self.masked[start:brace]
        parent = self.brackets.parent[brace]
        around = "top" if parent < 0 else self.bodies.get(parent, "block")
        if self.language in HEADED:
            named = _class_in(header)
            if named is not None:
                return "class", named[0], start + named[1]
            if around == "function":
                return None
        named = self._function_in(header, start, around)
        return None if named is None else ("function", named[0], start + named[1])

    def _function_in(self, header: str, start: int, around: str) -> tuple[str, int] | None:
        close = self._end_of_parameters(header)
        if close is None:
            return None
        opened = self.brackets.partner.get(start + close, -1) - start
        if opened <= 0:
            return None
        name_from = max(0, opened - _MAX_NAME_SEARCH)
        match = _NAME.search(header[name_from:opened])
        if match is None or match[1] in _STATEMENTS:
            return None
        at = name_from + match.start(1)
        fits = _is_method if self.language in METHODS else self._is_function
        return (match[1], at) if fits(header[:at], match[1], around) else None

    def _end_of_parameters(self, header: str) -> int | None:
        close = header.rfind(")")
        if close < 0:
            return None
        if self.language in HEADED:
            more = _AFTER_PARAMETERS.search(header)
            if more is not None:
                return more.start()
        return close if _TAIL.fullmatch(header, close + 1) else None

    def _is_function(self, before: str, name: str, around: str) -> bool:
        """Whether a type, or nothing where nothing may stand, comes before the name."""
        label = _ACCESS_LABEL.search(before[-40:])
        words = "" if label is not None else before.rstrip()
        if words:
            last = _LAST_WORD.search(words[-_MAX_NAME_SEARCH:])
            if last is not None:
                return last[1] not in _NO_TYPE
            return words[-1] in '>])*&?"' and not words.endswith("->")
        if around == "block" and "::" not in name:
            return False
        at_line_start = before.endswith("\n") or not before
        return not name.isupper() and (around == "class" or self.language not in _FLAT or at_line_start)


def _is_method(before: str, name: str, around: str) -> bool:
    last_line = before.rpartition("\n")[2]
    return around in {"class", "block"} and _METHOD_START.fullmatch(last_line) is not None


def _class_in(header: str) -> tuple[str, int] | None:
    """Return name and offset of the class-like thing a header announces."""
    found = list(_class_words(header))
    if not found:
        return None
    last = found[-1]
    if header.rstrip().endswith(")") and last[1] in {"struct", "enum", "union"}:
        return None  # a function that returns one
    words = last[2].split()
    # an export macro may stand before the name, `extends` and the like after it
    name = words[-1] if words[-1] not in _NOT_A_NAME else words[0]
    return name, last.start(2)


def _class_words(header: str) -> Iterator[re.Match[str]]:
    for match in _CLASS.finditer(header):
        start = match.start()
        # inside round brackets it is part of a parameter or an annotation
        if header.count("(", 0, start) == header.count(")", 0, start):
            yield match
