"""Shell text into words, for the subset of the shell's language that means the same whatever surrounds it.

Read are plain words, quotes, escapes, pipes, lists, documents with a quoted end, and redirections to
nowhere. Whatever the shell would expand, compute, define, redirect or run in the background is refused: its
meaning depends on more than the text. What bash alone knows (``&>``, ``|&``) is read only where bash runs the
text: to dash ``ls &>/dev/null rm x`` is two commands.

Source: bash(1), "QUOTING", "EXPANSION", "REDIRECTION"; POSIX.1-2017, Shell Command Language.
"""

from __future__ import annotations

import unicodedata
from typing import Final, NamedTuple

MAX_CHARS: Final = 8192
"""Longer commands are not read: nobody would see what was said yes to."""
MAX_CALLS: Final = 64
_BLANKS: Final = " \t"
_PLAIN: Final = frozenset("%+,-./:=@^_]!")
"""What means itself in a word, besides letters and digits."""
_GLOBS: Final = frozenset("*?[~{}#")
"""What the shell would expand, or take for a comment."""
_NOWHERE: Final = (
    *("2>&1", "1>&2", ">&1", ">&2"),
    *(f"{number}>{gap}/dev/null" for number in ("", "1", "2") for gap in ("", " ")),
    *("</dev/null", "< /dev/null"),
)
"""Redirections that read and write nothing."""
_NOWHERE_OF_BASH: Final = (*_NOWHERE, "&>/dev/null", "&> /dev/null")
_LISTS: Final = ("||", "&&", "|", ";", "\n")
_LISTS_OF_BASH: Final = ("|&", *_LISTS)
_MAY_END: Final = (";", "\n")
_ESCAPED_IN_QUOTES: Final = '$`"\\'
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
"""Categories of characters that are not seen, or not by everybody."""


class Word(NamedTuple):
    """One word of a command."""

    text: str
    """After quotes and escapes are gone."""
    is_bare: bool
    """Whether it was written without any."""


def calls_of(text: str, *, is_bash: bool = True) -> tuple[tuple[Word, ...], ...]:
    """Return the words of each program call of a command line, in the order they stand there.

    Args:
        text: The command line.
        is_bash: Whether it is bash that runs it; False = any shell of POSIX may.

    Raises:
        ValueError: it holds something outside the subset; says what.
    """
    return _Reader(text, is_bash=is_bash).calls()


def words_of_one_call(text: str) -> tuple[str, ...]:
    """Return the words of the one call that a text is, for a program that is started without a shell.

    Quotes and escapes mean what they mean to a shell; patterns and ``~`` mean themselves.

    Raises:
        ValueError: it is more than that, or a shell would compute a part of it; says what.
    """
    return _Reader(text.strip(_BLANKS + "\n"), keeps_globs=True).one_call()


def _check(text: str) -> None:
    if len(text) > MAX_CHARS:
        raise ValueError(f"it is {len(text)} characters long, and at most {MAX_CHARS} are read")
    for character in text:
        if character not in "\t\n" and unicodedata.category(character) in _HIDDEN:
            raise ValueError(f"it holds U+{ord(character):04X}, which is not seen")


class _Reader:
    """Reads one text from its beginning to its end."""

    def __init__(self, text: str, *, keeps_globs: bool = False, is_bash: bool = False) -> None:
        _check(text)
        self._text = text
        self._at = 0
        self._nowhere_marks = _NOWHERE_OF_BASH if is_bash else _NOWHERE
        self._list_marks = _LISTS_OF_BASH if is_bash else _LISTS
        self._keeps_globs = keeps_globs
        self._document: tuple[str, bool] | None = None
        """End of the document that follows this line, and whether tabs before it are left out."""

    def one_call(self) -> tuple[str, ...]:
        words: list[str] = []
        while self._skip_blanks():
            words.append(self._word().text)
        if not words:
            raise ValueError("it names no program")
        return tuple(words)

    def calls(self) -> tuple[tuple[Word, ...], ...]:
        calls: list[tuple[Word, ...]] = []
        words: list[Word] = []
        open_end = ""
        while self._skip_blanks():
            if self._nowhere() or self._opens_document():
                continue
            mark = self._list_mark()
            if mark is None:
                words.append(self._word())
                continue
            if words:
                calls.append(tuple(words))
                words, open_end = [], "" if mark in _MAY_END else mark
            elif mark != "\n":
                raise ValueError(f"nothing stands before {mark!r}")
            if mark == "\n":
                self._skip_document()
        if words:
            calls.append(tuple(words))
        elif open_end:
            raise ValueError(f"nothing stands behind {open_end!r}")
        self._check_end(len(calls))
        return tuple(calls)

    def _check_end(self, calls: int) -> None:
        if self._document is not None:
            raise ValueError("the document in it does not end")
        if not 1 <= calls <= MAX_CALLS:
            raise ValueError(f"it makes {calls} calls, and 1 to {MAX_CALLS} are judged")

    def _skip_blanks(self) -> bool:
        """Go to what comes next; returns whether there is anything."""
        while self._at < len(self._text) and self._text[self._at] in _BLANKS:
            self._at += 1
        return self._at < len(self._text)

    def _nowhere(self) -> bool:
        for mark in self._nowhere_marks:
            end = self._at + len(mark)
            is_whole = self._text[end : end + 1] in ("", *_BLANKS, "|", ";", "\n", "&")
            if is_whole and self._text.startswith(mark, self._at):
                self._at = end
                return True
        return False

    def _opens_document(self) -> bool:
        """Read ``<<'END'``; in an unquoted one the shell would expand and run what it holds."""
        if not self._text.startswith("<<", self._at):
            return False
        self._at += 2
        strips = self._text.startswith("-", self._at)
        self._at += strips
        if self._document is not None or not self._skip_blanks() or self._text[self._at] not in "'\"":
            raise ValueError("it holds a document whose end is not quoted, or several in a line")
        end = self._word().text
        if not end.isidentifier():
            raise ValueError(f"the document in it ends with {end!r}, which is no plain word")
        self._document = (end, strips)
        return True

    def _skip_document(self) -> None:
        if self._document is None:
            return
        end, strips = self._document
        while self._at < len(self._text):
            line, _, _ = self._text[self._at :].partition("\n")
            self._at += len(line) + 1
            if (line.lstrip("\t") if strips else line) == end:
                self._document = None
                return

    def _list_mark(self) -> str | None:
        for mark in self._list_marks:
            if self._text.startswith(mark, self._at):
                self._at += len(mark)
                return mark
        return None

    def _word(self) -> Word:
        parts: list[str] = []
        begin = self._at
        is_bare = True
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in _BLANKS or (not self._keeps_globs and character in "|;\n&<>"):
                break
            self._at += 1
            is_bare = is_bare and character not in "'\"\\"
            parts.append(self._piece(character, begin))
        following = self._text[self._at : self._at + 2]
        if self._at == begin or (following[:1] in ("&", "<", ">") and following != "&&"):
            self._refuse(following[:1])
        if self._document is not None and "\n" in self._text[begin : self._at]:
            raise ValueError("a quoted line end stands between a document and its mark")
        return Word("".join(parts), is_bare)

    def _piece(self, character: str, begin: int) -> str:
        """Return what one character, or the quotes it opens, add to a word."""
        if character == "'":
            return self._single()
        if character == '"':
            return self._double()
        if character == "\\":
            return self._escaped()
        if character in _GLOBS:
            return self._glob(character, begin)
        if character in _PLAIN or character.isalnum():
            return character
        return self._refuse(character)

    def _glob(self, character: str, begin: int) -> str:
        if self._keeps_globs or self._is_alone("{}", begin):
            return character
        before = self._text[self._at - 2] if self._at - 1 > begin else ""
        if (character == "~" and before not in ("", "=", ":")) or (character == "#" and before):
            return character
        return self._refuse(character)

    def _is_alone(self, word: str, begin: int) -> bool:
        end = begin + len(word)
        return self._text.startswith(word, begin) and self._text[end : end + 1] in (
            "",
            *_BLANKS,
            ";",
            "\n",
            "|",
        )

    def _refuse(self, character: str) -> str:
        meaning = {
            "$": "it computes a part of itself ('$')",
            "`": "it runs a command inside another ('`')",
            "&": "it runs something in the background, or redirects ('&')",
            "<": "it redirects ('<')",
            ">": "it redirects ('>')",
            "\n": "it is more than one line",
        }
        raise ValueError(meaning.get(character, f"it holds an unquoted {character!r}"))

    def _single(self) -> str:
        end = self._text.find("'", self._at)
        if end < 0:
            raise ValueError("a quote in it is not closed")
        text = self._text[self._at : end]
        self._at = end + 1
        return text

    def _double(self) -> str:
        parts: list[str] = []
        while self._at < len(self._text):
            character = self._text[self._at]
            following = self._text[self._at + 1 : self._at + 2]
            self._at += 1
            if character == '"':
                return "".join(parts)
            if character == "`" or (character == "$" and following != '"'):
                return self._refuse(character)
            if character == "\\" and following == "\n":
                return self._escaped()
            if character == "\\" and following and following in _ESCAPED_IN_QUOTES:
                character = following
                self._at += 1
            parts.append(character)
        raise ValueError("a quote in it is not closed")

    def _escaped(self) -> str:
        following = self._text[self._at : self._at + 1]
        if following in ("", "\n"):
            raise ValueError("a line of it goes on behind a backslash")
        self._at += 1
        return following
