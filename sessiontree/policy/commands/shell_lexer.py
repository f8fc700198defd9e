"""The lexer of shell text: calls, their words, and what of each word is literally in the text.

It never refuses a text. What it can't read with certainty is a reason why the words are *open*: the text may
name files that its words do not hold. The forms that it reads literally are listed; every other form is open.

Source: bash(1), "QUOTING", "EXPANSION", "REDIRECTION"; POSIX.1-2017, Shell Command Language.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import field
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from sessiontree.contracts.values.quick_dataclass import dataclass

_BLANKS: Final = " \t"
_OPERATORS: Final = ";|&\n()"
_PLAIN: Final = re.compile(r"[^\s'\"\\$`;|&<>()#{},]+")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REDIRECTION: Final = re.compile(r"<<<|<<-|<<|<&|<>|<|>>|>&|>\||>")
_FILE_VARIABLE: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_DOCUMENT_END: Final = re.compile(
    r"[ \t]*(?:'([^'\n\\]+)'|\"([^\"\n\\$`]+)\"|([A-Za-z0-9_.+-]+))(?=[\s;|&<>()]|$)"
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
_MAX_DOCUMENTS: Final = 64
_ANSI: Final = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|(.|$))", re.DOTALL
)
_ANSI_LETTERS: Final = {
    **dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True)),
    **{sign: sign for sign in "\\'\"?"},
}
_MAX_ASCII: Final = 0x7F


class Gap(Enum):
    """A part of a word that is not in the text."""

    NUMBER = "a number that the shell keeps"
    """``$?``, ``$#``, ``$$``, ``$!``: digits, or nothing."""
    UNKNOWN = "a part that the shell takes from elsewhere"
    """``$(…)``, ``$1``, ``$_``, ``$-``."""
    COMPUTED = "a part that the shell computes"
    """``$((…))``, ``${x:-…}``: it may also set variables."""


class Variable(NamedTuple):
    """A part of a word that is the value of a variable."""

    name: str


Part: TypeAlias = str | Variable | Gap


class ShellWord(NamedTuple):
    """One word of a call."""

    parts: tuple[Part, ...]
    """Adjacent texts are joined."""
    has_braces: bool = False
    """Whether an unquoted brace is in it, which the shell may expand."""
    hides_braces: bool = False
    """Whether a quoted brace or comma is in it, which the shell does not expand."""

    @property
    def text(self) -> str | None:
        """The whole word, if it is literally in the text."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], str) else None


class Document(NamedTuple):
    """A here-document."""

    text: str
    is_quoted: bool
    """Whether the shell expands nothing in it."""


@dataclass(slots=True)
class ShellCall:
    """One simple command, or a part of a compound one."""

    before: str
    """The operator before it; empty at the beginning."""
    words: list[ShellWord]
    targets: list[ShellWord] = field(default_factory=list)
    """What it is redirected from and to."""
    documents: list[Document] = field(default_factory=list)
    reads: bool = False
    """Whether its input is redirected."""
    writes: bool = False
    """Whether its output goes into a file."""


class ShellLexer:
    """Splits one text into calls."""

    def __init__(self, text: str, *, is_bash: bool = True) -> None:
        self._is_bash = is_bash
        self._text = text
        self._at = 0
        self._parts: list[Part] = []
        self._chars: list[str] = []
        self._has_word = False
        self._has_braces = False
        self._hides_braces = False
        self._call = ShellCall("", [])
        self._redirection = ""
        """The operator whose target is the next word."""
        self._ends: list[tuple[ShellCall, str, bool, bool]] = []
        """Calls whose documents follow the line: end, whether tabs go, whether it is quoted."""
        self._documents = 0
        self.calls: list[ShellCall] = []
        self.inner: list[str] = []
        """Texts inside it that a shell runs or computes."""
        self.sets: set[str] = set()
        """Variables that a redirection sets."""
        self.computes = False
        """Whether it may set variables in a way that is not read."""
        self.is_whole = True
        """Whether each quote, parenthesis and document in it ends."""
        self.why_open = ""
        """Why it may name files that its words do not hold; empty = it can't."""

    def read(self) -> None:
        """Read the whole text."""
        text, end = self._text, len(self._text)
        while self._at < end:
            plain = _PLAIN.match(text, self._at)
            if plain is not None:
                self._chars.append(plain[0])
                self._has_word = True
                self._at = plain.end()
                continue
            sign = text[self._at]
            self._at += 1
            if sign in _BLANKS:
                self._end_word()
            elif sign in _OPERATORS:
                self._read_operator(sign)
            elif sign in "<>":
                self._read_redirection()
            elif sign == "#" and not self._has_word:
                self._read_until("\n", is_kept=True)
            else:
                self._read_piece(sign)
        self._end_call("")
        if self._ends:
            self._skip_documents()

    def _open(self, why: str) -> None:
        self.why_open = self.why_open or why

    def _read_redirection(self) -> None:
        self._at -= 1
        match = _REDIRECTION.match(self._text, self._at)
        operator = match[0] if match is not None else ""
        self._at += len(operator)
        self._flush()
        if self._has_word and len(self._parts) == 1 and isinstance(self._parts[0], str):
            variable = _FILE_VARIABLE.fullmatch(self._parts[0])
            if variable is not None:
                self.sets.add(variable[1])
            if variable is not None or self._parts[0].isdigit():
                self._parts, self._has_word, self._has_braces = [], False, False
        self._end_word()
        if self._text.startswith("(", self._at):
            self._open("a program's output stands for a file")
        if operator in {"<<", "<<-"}:
            self._begin_document(operator)
            return
        self._redirection = operator
        self._call.reads = self._call.reads or operator.startswith("<")

    def _begin_document(self, operator: str) -> None:
        self._call.reads = True
        match = _DOCUMENT_END.match(self._text, self._at)
        self._documents += 1
        # For each document the rest of the text is searched, so their number is bounded.
        if match is None or self._documents > _MAX_DOCUMENTS:
            self.is_whole = False
            return
        self._at = match.end()
        end, is_quoted = match[1] or match[2] or match[3], match[3] is None
        self._ends.append((self._call, end, operator == "<<-", is_quoted))

    def _skip_documents(self) -> None:
        """Read the documents after a line; without its end line, a document is not one."""
        ends, self._ends = self._ends, []
        for call, end, has_tabs, is_quoted in ends:
            tabs = r"\t*" if has_tabs else ""
            match = re.compile(rf"^{tabs}{re.escape(end)}$", re.MULTILINE).search(self._text, self._at)
            if match is None:
                self.is_whole = False
                continue
            call.documents.append(Document(self._text[self._at : match.start()], is_quoted))
            self._at = match.end() + 1

    def _flush(self) -> None:
        if self._chars:
            self._parts.append("".join(self._chars))
            self._chars = []

    def _end_word(self) -> None:
        if not self._has_word:
            return
        self._flush()
        word = ShellWord(tuple(self._parts) or ("",), self._has_braces, self._hides_braces)
        self._parts, self._has_word, self._has_braces, self._hides_braces = [], False, False, False
        operator, self._redirection = self._redirection, ""
        if not operator:
            self._call.words.append(word)
            return
        self._call.targets.append(word)
        is_file = word.text is None or not (word.text in {"-", "/dev/null"} or word.text.isdigit())
        self._call.writes = self._call.writes or (">" in operator and is_file)

    def _end_call(self, operator: str) -> None:
        self._end_word()
        self._redirection = ""
        call = self._call
        if call.words or call.targets or call.reads:
            self.calls.append(call)
            self._call = ShellCall(operator, [])
        else:
            call.before += operator

    def _read_operator(self, sign: str) -> None:
        operator = sign
        if sign in "|&;" and self._text[self._at : self._at + 1] in {sign, "&" if sign == "|" else sign}:
            operator = "|" if self._text[self._at] == "&" and sign == "|" else sign * 2
            self._at += 1
        if sign == "(":
            self._open_parenthesis()
        self._end_call(operator)
        if sign == "\n":
            self._skip_documents()

    def _open_parenthesis(self) -> None:
        self._flush()
        last = self._parts[-1] if self._parts else ""
        if isinstance(last, str) and last[-1:] in tuple("?*+@!="):
            self._open("it uses a pattern or a list of bash")
        if self._text.startswith("(", self._at) and not self._has_word:
            self.computes = True
            self._open("it calculates with variables")

    def _read_piece(self, sign: str) -> None:
        if sign == "\\":
            following = self._text[self._at : self._at + 1]
            self._at += 1
            if following != "\n":
                self._has_word = True
                self._add_quoted(following)
            return
        self._has_word = True
        if sign == "'":
            self._add_quoted(self._read_until("'"))
        elif sign == '"':
            self._read_double_quoted()
        elif sign == "$":
            self._read_computed(is_quoted=False)
        elif sign == "`":
            self._read_backquoted()
        else:
            self._has_braces = self._has_braces or sign == "{"
            self._chars.append(sign)

    def _add_quoted(self, text: str) -> None:
        self._hides_braces = self._hides_braces or any(sign in text for sign in "{},")
        self._chars.append(text)

    def _read_until(self, sign: str, *, is_kept: bool = False) -> str:
        """Return the text before the next such sign, or the rest; continue after it or, if kept, at it."""
        end = self._text.find(sign, self._at)
        if end < 0:
            self.is_whole = self.is_whole and is_kept
            end = len(self._text)
        text = self._text[self._at : end]
        self._at = end if is_kept else end + 1
        return text

    def _read_double_quoted(self) -> None:
        plain = re.compile(r'[^"\\$`]+')
        while self._at < len(self._text):
            match = plain.match(self._text, self._at)
            if match is not None:
                self._add_quoted(match[0])
                self._at = match.end()
                continue
            sign = self._text[self._at]
            self._at += 1
            if sign == '"':
                return
            if sign == "\\" and self._text[self._at : self._at + 1] in tuple('$`"\\\n'):
                self._read_piece(sign)
            elif sign == "$":
                self._read_computed(is_quoted=True)
            elif sign == "`":
                self._read_backquoted()
            else:
                self._chars.append(sign)
        self.is_whole = False

    def _add(self, part: Part) -> None:
        self._flush()
        self._parts.append(part)

    def _read_escaped_until(self, sign: str) -> str:
        begin = self._at
        while self._at < len(self._text) and self._text[self._at] != sign:
            self._at += 2 if self._text[self._at] == "\\" else 1
        self.is_whole = self.is_whole and self._at < len(self._text)
        text = self._text[begin : self._at]
        self._at += 1
        return text

    def _read_backquoted(self) -> None:
        # Between backquotes the shell removes one more level of backslashes before it reads the text.
        self.inner.append(re.sub(r"\\([$`\\])", r"\1", self._read_escaped_until("`")))
        self._add(Gap.UNKNOWN)

    def _read_computed(self, *, is_quoted: bool) -> None:
        """Read what follows ``$``: a plain variable, or something that is not in the text."""
        following = self._text[self._at : self._at + 1]
        name = _NAME.match(self._text, self._at)
        if name is not None and name[0] != "_":
            self._at = name.end()
            self._add(Variable(name[0]))
        elif following == "(":
            inside = self._read_nested()
            self.inner.append(inside)
            self.computes = self.computes or inside.startswith("(")
            self._add(Gap.COMPUTED if inside.startswith("(") else Gap.UNKNOWN)
        elif following == "{":
            self._at += 1
            self._read_braced()
        elif following == "'" and not is_quoted:
            self._at += 1
            self._read_ansi()
        elif following and following in "?#$!":
            self._at += 1
            self._add(Gap.NUMBER)
        elif following and (following in "0123456789@*_-" or not following.isascii()):
            self._at += 1
            self._add(Gap.UNKNOWN)
        elif following == "[" or (following == '"' and not is_quoted):  # older arithmetic; a translation
            self.computes = True
            self._add(Gap.COMPUTED)
        else:
            self._chars.append("$")

    def _read_nested(self) -> str:
        """Return the text up to the matching closing parenthesis, and continue after it."""
        begin = self._at + 1
        depth = 0
        while self._at < len(self._text):
            sign = self._text[self._at]
            self._at += 1
            if sign == "\\":
                self._at += 1
            elif sign == "'":
                self._read_until("'")
            elif sign in "()":
                depth += 1 if sign == "(" else -1
                if not depth:
                    return self._text[begin : self._at - 1]
        self.is_whole = False
        return self._text[begin:]

    def _read_braced(self) -> None:
        body = self._read_until("}")
        if _NAME.fullmatch(body) and body != "_":
            self._add(Variable(body))
        elif body.isdigit() or body in {"@", "*", "_", "-"}:
            self._add(Gap.UNKNOWN)
        else:
            self.computes = True
            self.inner.append(body)
            self._add(Gap.COMPUTED)

    def _read_ansi(self) -> None:
        text = self._read_escaped_until("'")
        if not self._is_bash:  # another shell reads a dollar sign and a quoted text
            self.inner.append(text)
            self._add(Gap.UNKNOWN)
            return
        try:
            self._add_quoted(_ANSI.sub(_unescape, text))
        except ValueError:
            self.inner.append(text)
            self._add(Gap.UNKNOWN)


def _unescape(match: re.Match[str]) -> str:
    """Return the character that an escape stands for.

    Raises:
        ValueError: bash reads it by the locale, cuts the text there, or keeps the backslash.
    """
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if match[group]:
            number = int(match[group], base)
            if not 0 < number <= _MAX_ASCII:
                raise ValueError(match[0])
            return chr(number)
    if match[5] not in _ANSI_LETTERS:
        raise ValueError(match[0])
    return _ANSI_LETTERS[match[5]]


def skip_to_program(words: Sequence[ShellWord], introductions: frozenset[str]) -> list[ShellWord]:
    """Return a call's words from the one that names its program on.

    Args:
        words: The call's words.
        introductions: Words of the shell that may precede a program.
    """
    for at, word in enumerate(words):
        first = word.parts[0]
        if word.text in introductions or (isinstance(first, str) and _ASSIGNMENT.match(first)):
            continue
        return list(words[at:])
    return []
