"""Every word that a command may use, read loosely: one too many is better than one missed.

A person's approval of a command is bound to the files that its words name, so each way to write a name
counts: quotes, escapes, braces, variables that the text itself sets, text within text. What a shell computes
from elsewhere can't be known in advance. In that case the words are *open*, and any file may be meant.

Source: bash(1), "QUOTING", "EXPANSION", "PARAMETERS".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final, NamedTuple, TypeAlias, TypeGuard

MAX_TEXTS: Final = 400
"""Maximum number of nested texts that are read."""
_MAX_READ: Final = 200_000
"""Maximum number of their characters that are read, in addition to four times those of the command."""
MAX_WORDS: Final = 4_000
"""Maximum number of distinct words; a command with more is open."""
_MAX_FORMS: Final = 256
"""Maximum number of forms of one word."""

_BLANKS: Final = " \t"
_OPERATORS: Final = ";|&\n()"
_BETWEEN: Final = re.compile(r"[\s'\"|;&<>()`$=\\{},:@]+")
"""Characters that may separate names, whatever they mean there."""
_MEANING: Final = re.compile(r"[\s'\"\\$`;|&<>()]")
"""Characters that make a word a text of its own, if a shell runs it."""
_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.ASCII | re.DOTALL)
_READ_ALONE: Final = re.compile(r"\s*<\s*[\w./-]+\s*")
"""``$(< file)`` is replaced by the content of a file, which the words name."""
_DOCUMENT: Final = re.compile(r"<-?[ \t]*((?:[^\s'\"\\;|&<>()]|'[^'\n]*'|\"[^\"\n]*\"|\\.)+)")
_BRACES: Final = re.compile(r"\{([^{}]*)\}")
_RANGE: Final = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?")
_ANSI: Final = re.compile(
    r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|U([0-9A-Fa-f]{1,8})|([0-7]{1,3})|c.|(.))", re.DOTALL
)
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))

_SHELLS: Final = frozenset({"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "source", ".", "eval"})
_CHOOSERS: Final = frozenset({"find", "fd", "fdfind", "xargs", "parallel", "entr", "shopt", "watch"})
"""Programs that choose files by what they find or receive, and words that change what patterns mean."""
_SETTER_NAMES: Final = """
    read mapfile readarray getopts let select printf declare typeset local source . eval unset set wait
"""
_SETTERS: Final = frozenset(_SETTER_NAMES.split())
"""Words that may set variables from sources other than the text."""
_HERE: Final = frozenset({"PWD", "OLDPWD", "DIRSTACK"})
_NUMBER_NAMES: Final = """
    RANDOM SRANDOM SECONDS UID EUID PPID LINENO COLUMNS LINES SHLVL BASHPID EPOCHSECONDS EPOCHREALTIME
"""
_NUMBERS: Final = frozenset(_NUMBER_NAMES.split())


class NamedWords(NamedTuple):
    """The words that a command may name."""

    words: frozenset[str]
    """Names and patterns of files, not yet resolved to a directory."""
    is_open: bool
    """Whether it may name any other file, too."""


class _Value(NamedTuple):
    """A part of a word that comes from a variable."""

    name: str


class _Gap(NamedTuple):
    """A part of a word that is not in the text."""

    kind: str


_ANYTHING: Final = _Gap("anything")
_NUMBER: Final = _Gap("number")
_OPERAND: Final = _Gap("operand")
"""``$1``, ``$@``: a word of the same text, or nothing."""
_CONTENT: Final = _Gap("content")
_DIGITS: Final = "[0-9]*"
_Part: TypeAlias = str | _Value | _Gap
_Parts: TypeAlias = tuple[_Part, ...]


def words_in(text: str, variables: Mapping[str, str]) -> NamedWords:
    """Return every word of a command line that may name a file.

    Args:
        text: The command line, for any shell; it may be invalid.
        variables: Environment variables in addition to a command's own.
    """
    found = _Collection({name: [(value,)] for name, value in variables.items()})
    found.read(text)
    forms = found.forms()
    for form in [*forms]:
        forms |= set(_BETWEEN.split(form))
        if form[:1] == "-":
            forms.add(form[2:])
    forms |= set(_BETWEEN.split(text))
    forms |= {form[at + 1 :] for form in [*forms] for at, sign in enumerate(form) if sign == "/"}
    forms = {form for form in forms if form and not form.startswith("~")}
    if len(forms) > MAX_WORDS:
        return NamedWords(frozenset(), True)
    return NamedWords(frozenset(forms), found.is_open)


@dataclass(slots=True)
class _Collection:
    """The words of a text, and of all texts within it."""

    assigned: dict[str, list[_Parts]]
    words: list[_Parts] = field(default_factory=list)
    texts: set[str] = field(default_factory=set)
    sets_more: bool = False
    is_open: bool = False

    def read(self, text: str) -> None:
        """Read a text, its separate lines, and the texts in it."""
        lines = text.split("\n")
        if len(lines) > MAX_WORDS:
            self.is_open = True
            return
        waiting = [text, *lines]  # a wrongly recognised quote then affects only its own line
        most, left = len(self.texts) + len(lines) + MAX_TEXTS, _MAX_READ + 4 * len(text)
        while waiting:
            each = waiting.pop()
            if each in self.texts or not each.strip():
                continue
            left -= len(each)
            if left < 0 or len(self.texts) >= most or len(self.words) >= MAX_WORDS:
                self.is_open = True
                return
            self.texts.add(each)
            lexer = _Lexer(each)
            lexer.read()
            self.is_open = self.is_open or lexer.is_open
            waiting += lexer.inner
            for before, words in lexer.calls:
                self._take(before, words)
                waiting += [word[0] for word in words if len(word) == 1 and _is_text(word[0])]

    def forms(self) -> set[str]:
        """Return the possible values of the words after all substitutions."""
        found: set[str] = set()
        known = 0
        while known != len(self.words):  # a word after substitution may be a text of its own
            fresh, known = self.words[known:], len(self.words)
            for word in fresh:
                forms = {each for form in self._forms(word) for each in self._braced(form)}
                for form in forms - found:
                    if _is_text(form):
                        self.read(form)
                found |= forms
        return found

    def _take(self, before: str, words: Sequence[_Parts]) -> None:
        names = [word[0] if len(word) == 1 and isinstance(word[0], str) else "" for word in words]
        programs = {name.rpartition("/")[2] or name for name in names}
        self.sets_more = self.sets_more or not programs.isdisjoint(_SETTERS)
        is_fed = before == "|" and not programs.isdisjoint(_SHELLS)
        self.is_open = self.is_open or is_fed or not programs.isdisjoint(_CHOOSERS)
        self.words += words
        for word in words:
            first = word[0] if word else ""
            match = _ASSIGNED.match(first) if isinstance(first, str) else None
            if match is not None:
                value: _Parts = (match[3], *word[1:])
                self.assigned.setdefault(match[1], []).append((_ANYTHING,) if match[2] else value)
        if "for" in names[:-1]:
            at = names.index("for") + 1
            self.assigned.setdefault(names[at], []).extend(words[at + 2 :] or [(_OPERAND,)])

    def _forms(self, word: _Parts, within: tuple[str, ...] = ()) -> list[str]:
        choices = [[part] if isinstance(part, str) else self._filled(part, within) for part in word]
        total = 1
        for choice in choices:
            total *= len(choice)
        if total > _MAX_FORMS:
            self.is_open = True
            choices = [choice if len(choice) == 1 else ["*"] for choice in choices]
        return ["".join(chosen) for chosen in product(*choices)]

    def _filled(self, part: _Value | _Gap, within: tuple[str, ...]) -> list[str]:
        if isinstance(part, _Value):
            return self._values(part.name, within)
        if part is _ANYTHING:
            self.is_open = True
        if part is _OPERAND:
            return self._operands()
        return [_DIGITS if part is _NUMBER else "" if part is _CONTENT else "*"]

    def _operands(self) -> list[str]:
        if len(self.words) > _MAX_FORMS:
            self.is_open = True
            return ["*"]
        first = (word[0] for word in self.words if len(word) == 1)
        return sorted({"", *[part for part in first if isinstance(part, str)]})

    def _values(self, name: str, within: tuple[str, ...]) -> list[str]:
        if name in within:
            self.is_open = True
            return ["*"]
        values = self.assigned.get(name)
        if values is not None:
            self.is_open = self.is_open or self.sets_more or name == "IFS"
            return [form for value in values for form in self._forms(value, (*within, name))] or [""]
        if name in _HERE:
            return ["."]
        if name in _NUMBERS:
            return [_DIGITS]
        self.is_open = self.is_open or self.sets_more
        return [""]  # a command's environment holds no more, and nothing of its own leads into a workspace

    def _braced(self, form: str) -> Iterator[str]:
        """Yield the expansions of a word by ``{a,b}`` and ``{1..3}``, and the word itself."""
        yield form
        waiting, count = [form], 0
        while waiting:
            each = waiting.pop()
            match = next((m for m in _BRACES.finditer(each) if _choices(m[1])), None)
            if match is None:
                yield each
                continue
            count += 1
            choices = _choices(match[1])
            if count * len(choices) > _MAX_FORMS:
                self.is_open = True
                return
            waiting += [each[: match.start()] + choice + each[match.end() :] for choice in choices]


def _is_text(word: _Part) -> TypeGuard[str]:
    return isinstance(word, str) and _MEANING.search(word) is not None


def _choices(body: str) -> list[str]:
    if "," in body:
        return body.split(",")
    match = _RANGE.fullmatch(body)
    if match is None:
        return []
    first, last, step = match[1], match[2], abs(int(match[3] or 1)) or 1
    if first.isalpha() != last.isalpha():
        return []
    begin, end = (ord(first), ord(last)) if first.isalpha() else (int(first), int(last))
    if abs(end - begin) > _MAX_FORMS:
        return ["*"]  # a pattern that matches all of them
    numbers = range(begin, end - 1, -step) if end < begin else range(begin, end + 1, step)
    if first.isalpha():
        return [chr(number) for number in numbers]
    width = max(len(first), len(last)) if first[:1] == "0" or last[:1] == "0" else 0
    return [str(number).zfill(width) for number in numbers]


class _Lexer:
    """Splits one text into calls; never refuses a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._parts: list[_Part] = []
        self._has_word = False
        self._words: list[_Parts] = []
        self._before = ""
        self._ends: list[str] = []
        """Ends of the documents that follow the line."""
        self.calls: list[tuple[str, list[_Parts]]] = []
        """The operator before each call, and its words."""
        self.inner: list[str] = []
        """Texts inside it that a shell runs or computes."""
        self.is_open = False

    def read(self) -> None:
        while self._at < len(self._text):
            sign = self._text[self._at]
            self._at += 1
            if sign in _BLANKS:
                self._end_word()
            elif sign in _OPERATORS:
                self._operate(sign)
            elif sign in "<>":
                self._redirect(sign)
            elif sign == "#" and not self._has_word:
                self._until("\n", is_kept=True)
            else:
                self._has_word = True
                self._piece(sign)
        self._operate("")

    def _redirect(self, sign: str) -> None:
        self._end_word()
        self.is_open = self.is_open or self._text.startswith("(", self._at)
        if sign == "<" and self._text.startswith("<", self._at) and not self._text.startswith("<<", self._at):
            match = _DOCUMENT.match(self._text, self._at)
            if match is not None:
                self._ends.append(re.sub(r"['\"\\]", "", match[1]))

    def _skip_documents(self) -> None:
        """Read the documents after a line as texts; without its end line, a document is not one."""
        for end in self._ends:
            match = re.compile(rf"^\t*{re.escape(end)}$", re.MULTILINE).search(self._text, self._at)
            if match is not None:
                self.inner.append(self._text[self._at : match.start()])
                self._at = match.end() + 1
        self._ends = []

    def _end_word(self) -> None:
        if self._has_word:
            self._words.append(_joined(self._parts))
            self._parts, self._has_word = [], False

    def _operate(self, sign: str) -> None:
        if sign == "(" and self._parts and isinstance(self._parts[-1], str):
            self.is_open = self.is_open or self._parts[-1][-1:] in tuple("?*+@!=")
        self._end_word()
        if sign == "\n":
            self._skip_documents()
        if self._words:
            self.calls.append((self._before, self._words))
            self._words, self._before = [], sign
        elif sign != "&":  # of ``|&``
            self._before += sign

    def _piece(self, sign: str) -> None:
        if sign == "\\":
            following = self._text[self._at : self._at + 1]
            self._at += 1
            self._parts.append("" if following == "\n" else following)
        elif sign == "'":
            self._parts.append(self._until("'"))
        elif sign == '"':
            self._double()
        elif sign == "$":
            self._computed(is_quoted=False)
        elif sign == "`":
            self._backquoted()
        else:
            self._parts.append(sign)

    def _until(self, sign: str, *, is_kept: bool = False) -> str:
        """Return the text before the next such sign, or the rest; continue after it or, if kept, at it."""
        end = self._text.find(sign, self._at)
        end = len(self._text) if end < 0 else end
        text = self._text[self._at : end]
        self._at = end if is_kept else end + 1
        return text

    def _double(self) -> None:
        while self._at < len(self._text):
            sign = self._text[self._at]
            self._at += 1
            if sign == '"':
                return
            if sign == "\\" and self._text[self._at : self._at + 1] in tuple('$`"\\\n'):
                self._piece(sign)
            elif sign == "$":
                self._computed(is_quoted=True)
            elif sign == "`":
                self._backquoted()
            else:
                self._parts.append(sign)

    def _backquoted(self) -> None:
        begin = self._at
        while self._at < len(self._text) and self._text[self._at] != "`":
            self._at += 2 if self._text[self._at] == "\\" else 1
        self.inner.append(re.sub(r"\\([$`\\])", r"\1", self._text[begin : self._at]))
        self._at += 1
        self._parts.append(_ANYTHING)

    def _computed(self, *, is_quoted: bool) -> None:
        following = self._text[self._at : self._at + 1]
        name = _NAME.match(self._text, self._at)
        if name is not None:
            self._at = name.end()
            self._parts.append(_Value(name[0]))
        elif following == "(":
            self._substituted()
        elif following == "{":
            self._at += 1
            self._parts.append(self._braced())
        elif following == "'" and not is_quoted:
            self._at += 1
            self._parts.append(self._ansi())
        elif following == '"' and not is_quoted:
            return
        elif following and following in "0123456789@*_":
            self._at += 1
            self._parts.append(_OPERAND)
        elif following and following in "?#$!-":
            self._at += 1
            self._parts.append(_NUMBER)
        else:
            self._parts.append("$")

    def _substituted(self) -> None:
        inside = self._nested()
        self.inner.append(inside)
        if inside.startswith("("):
            self._parts.append(_NUMBER)
        else:
            self._parts.append(_CONTENT if _READ_ALONE.fullmatch(inside) else _ANYTHING)

    def _nested(self) -> str:
        """Return the text up to the matching closing parenthesis, and continue after it."""
        begin = self._at + 1
        depth = 0
        while self._at < len(self._text):
            sign = self._text[self._at]
            self._at += 1
            if sign == "\\":
                self._at += 1
            elif sign == "'":
                self._until("'")
            elif sign in "()":
                depth += 1 if sign == "(" else -1
                if not depth:
                    return self._text[begin : self._at - 1]
        return self._text[begin:]

    def _braced(self) -> _Part:
        body = self._until("}")
        if _NAME.fullmatch(body):
            return _Value(body)
        if body.isdigit() or body in {"@", "*"}:
            return _OPERAND
        if body[:1] == "#" and _NAME.fullmatch(body[1:]):
            return _NUMBER
        self.inner.append(body)
        return _ANYTHING

    def _ansi(self) -> str:
        begin = self._at
        while self._at < len(self._text) and self._text[self._at] != "'":
            self._at += 2 if self._text[self._at] == "\\" else 1
        text = self._text[begin : self._at]
        self._at += 1
        return _ANSI.sub(_unescaped, text)


def _unescaped(match: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if match[group]:
            number = int(match[group], base)
            return chr(number) if number < 0x110000 else ""
    return _ANSI_LETTERS.get(match[5], match[5]) if match[5] else ""


def _joined(parts: Sequence[_Part]) -> _Parts:
    """Return the parts with adjacent texts joined."""
    joined: list[_Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        else:
            joined.append(part)
    return tuple(joined) or ("",)
