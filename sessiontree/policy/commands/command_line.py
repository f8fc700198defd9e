"""Command lines: shell text becomes words, and words become the options and programs that they name.

The supported subset of the shell's language means the same in every context: plain words, quotes, escapes,
pipes, lists, documents with a quoted end, and redirections to nowhere. Everything that the shell would
expand, compute, define, redirect or run in the background is refused, because its meaning depends on more
than the text. Syntax of bash alone (``&>``, ``|&``) is read only if bash runs the text: for dash,
``ls &>/dev/null rm x`` is two commands.

A grammar names every accepted option in full. With any other option, including an abbreviation, a call can't
be judged. Some programs add nothing of their own and are judged by what they run. Others take what they run
from elsewhere, or read it by their own rules: what they name can be shown, but not judged.

Source: bash(1), "QUOTING", "EXPANSION", "REDIRECTION"; POSIX.1-2017, Shell Command Language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_CHARS: Final = 8192
"""Longer commands are not read: no person could see what they approve."""
MAX_CALLS: Final = 64
_BLANKS: Final = " \t"
_PLAIN_WORD: Final = frozenset("%+,-./:=@^_]!")
"""Characters that mean themselves in a word, in addition to letters and digits."""
_GLOBS: Final = frozenset("*?[~{}#")
"""Characters that the shell would expand, or that begin a comment."""
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
"""Categories of characters that are invisible, at least to some people."""


class Word(NamedTuple):
    """One word of a command."""

    text: str
    """The text without its quotes and escapes."""
    is_bare: bool
    """Whether it was written without quotes and escapes."""


def split_calls(text: str, *, is_bash: bool = True) -> tuple[tuple[Word, ...], ...]:
    """Return the words of each program call of a command line, in their order in the text.

    Args:
        text: The command line.
        is_bash: Whether bash runs it; False = any POSIX shell may.

    Raises:
        ValueError: it contains something outside the subset; says what.
    """
    return _Reader(text, is_bash=is_bash).calls()


def split_one_call(text: str) -> tuple[str, ...]:
    """Return the words of a text that is one call, for a program that is started without a shell.

    Quotes and escapes mean the same as in a shell; patterns and ``~`` mean themselves.

    Raises:
        ValueError: it is more than one call, or a shell would compute a part of it; says what.
    """
    return _Reader(text.strip(_BLANKS + "\n"), keeps_globs=True).read_one_call()


def _check(text: str) -> None:
    if len(text) > MAX_CHARS:
        raise ValueError(f"it is {len(text)} characters long, and at most {MAX_CHARS} are read")
    for character in text:
        if character not in "\t\n" and unicodedata.category(character) in _HIDDEN:
            raise ValueError(f"it holds U+{ord(character):04X}, which is invisible")


class _Reader:
    """Reads one text from beginning to end."""

    def __init__(self, text: str, *, keeps_globs: bool = False, is_bash: bool = False) -> None:
        _check(text)
        self._text = text
        self._at = 0
        self._nowhere_marks = _NOWHERE_OF_BASH if is_bash else _NOWHERE
        self._list_marks = _LISTS_OF_BASH if is_bash else _LISTS
        self._keeps_globs = keeps_globs
        self._document: tuple[str, bool] | None = None
        """End of the document that follows this line, and whether tabs before it are removed."""

    def read_one_call(self) -> tuple[str, ...]:
        words: list[str] = []
        while self._skip_blanks():
            words.append(self._read_word().text)
        if not words:
            raise ValueError("it names no program")
        return tuple(words)

    def calls(self) -> tuple[tuple[Word, ...], ...]:
        calls: list[tuple[Word, ...]] = []
        words: list[Word] = []
        open_end = ""
        while self._skip_blanks():
            if self._skip_nowhere() or self._start_document():
                continue
            mark = self._list_mark()
            if mark is None:
                words.append(self._read_word())
                continue
            if words:
                calls.append(tuple(words))
                words, open_end = [], "" if mark in _MAY_END else mark
            elif mark != "\n":
                raise ValueError(f"nothing is before {mark!r}")
            if mark == "\n":
                self._skip_document()
        if words:
            calls.append(tuple(words))
        elif open_end:
            raise ValueError(f"nothing is after {open_end!r}")
        self._check_end(len(calls))
        return tuple(calls)

    def _check_end(self, calls: int) -> None:
        if self._document is not None:
            raise ValueError("the here-document in it does not end")
        if not 1 <= calls <= MAX_CALLS:
            raise ValueError(f"it runs {calls} commands; the limit is {MAX_CALLS}")

    def _skip_blanks(self) -> bool:
        """Skip to what comes next; return whether there is anything."""
        while self._at < len(self._text) and self._text[self._at] in _BLANKS:
            self._at += 1
        return self._at < len(self._text)

    def _skip_nowhere(self) -> bool:
        for mark in self._nowhere_marks:
            end = self._at + len(mark)
            # `2>/dev/nullx` writes a file of that name.
            is_whole = self._text[end : end + 1] in ("", *_BLANKS, "|", ";", "\n", "&")
            if is_whole and self._text.startswith(mark, self._at):
                self._at = end
                return True
        return False

    def _start_document(self) -> bool:
        """Read ``<<'END'``; in an unquoted document the shell would expand and run the content."""
        if not self._text.startswith("<<", self._at):
            return False
        self._at += 2
        strips = self._text.startswith("-", self._at)
        self._at += strips
        if self._document is not None or not self._skip_blanks() or self._text[self._at] not in "'\"":
            raise ValueError("it holds a here-document whose end mark is not quoted, or several on one line")
        end = self._read_word().text
        if not end.isidentifier():
            raise ValueError(f"the here-document in it ends with {end!r}, which is not a plain word")
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

    def _read_word(self) -> Word:
        parts: list[str] = []
        begin = self._at
        is_bare = True
        while self._at < len(self._text):
            character = self._text[self._at]
            if character in _BLANKS or (not self._keeps_globs and character in "|;\n&<>"):
                break
            self._at += 1
            is_bare = is_bare and character not in "'\"\\"
            parts.append(self._read_piece(character, begin))
        following = self._text[self._at : self._at + 2]
        if self._at == begin or (following[:1] in ("&", "<", ">") and following != "&&"):
            self._refuse(following[:1])
        # The shell begins the document after this line end, in the middle of what is read as one word here.
        if self._document is not None and "\n" in self._text[begin : self._at]:
            raise ValueError("a quoted line end is between a here-document and its mark")
        return Word("".join(parts), is_bare)

    def _read_piece(self, character: str, begin: int) -> str:
        """Return what one character, or the quotes it opens, adds to a word."""
        if character == "'":
            return self._read_single_quoted()
        if character == '"':
            return self._read_double_quoted()
        if character == "\\":
            return self._read_escaped()
        if character in _GLOBS:
            return self._read_glob(character, begin)
        if character in _PLAIN_WORD or character.isalnum():
            return character
        return self._refuse(character)

    def _read_glob(self, character: str, begin: int) -> str:
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

    def _read_single_quoted(self) -> str:
        end = self._text.find("'", self._at)
        if end < 0:
            raise ValueError("a quote in it is not closed")
        text = self._text[self._at : end]
        self._at = end + 1
        return text

    def _read_double_quoted(self) -> str:
        parts: list[str] = []
        while self._at < len(self._text):
            character = self._text[self._at]
            following = self._text[self._at + 1 : self._at + 2]
            self._at += 1
            if character == '"':
                return "".join(parts)
            # Before the closing quote a dollar sign means itself.
            if character == "`" or (character == "$" and following != '"'):
                return self._refuse(character)
            if character == "\\" and following == "\n":
                return self._read_escaped()
            if character == "\\" and following and following in _ESCAPED_IN_QUOTES:
                character = following
                self._at += 1
            parts.append(character)
        raise ValueError("a quote in it is not closed")

    def _read_escaped(self) -> str:
        following = self._text[self._at : self._at + 1]
        if following in ("", "\n"):
            raise ValueError("a line of it continues after a backslash")
        self._at += 1
        return following


@dataclass(frozen=True, slots=True)
class Grammar:
    """The arguments that a program accepts."""

    flags: str = ""
    """Letters of options without a value."""
    valued: str = ""
    """Letters of options with a value, which is attached or the next word."""
    long_flags: frozenset[str] = frozenset()
    """Long options without a value, without their dashes."""
    long_valued: frozenset[str] = frozenset()
    """Long options with a value, which follows ``=`` or is the next word."""
    long_either: frozenset[str] = frozenset()
    """Long options that have a value only after ``=``."""
    takes_number: bool = False
    """Whether ``-5`` is an option."""
    least: int = 0
    """Minimum number of operands."""
    most: int | None = None
    """Maximum number of operands; None = any number."""
    begins: str = ""
    """The beginning of every operand."""
    stops: bool = False
    """Whether the first operand ends the options."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A program's arguments, read by a grammar."""

    options: tuple[str, ...]
    """Names of the options with their dashes, sorted, each once, without values."""
    operands: tuple[str, ...]
    is_closed: bool
    """Whether ``--`` was present: everything added after it is an operand."""


def read_arguments(grammar: Grammar, words: Sequence[str]) -> Arguments:
    """Return a program's arguments according to its grammar.

    Raises:
        ValueError: an option is not in the grammar or has no value, or there are too many or too few
            operands.
    """
    options: set[str] = set()
    operands: list[str] = []
    rest = list(reversed(words))
    is_closed = False
    while rest:
        word = rest.pop()
        if is_closed or word == "-" or not word.startswith("-"):
            operands.append(word)
            if grammar.stops:
                operands += reversed(rest)
                break
        elif word == "--":
            is_closed = True
        elif word.startswith("--"):
            options.add(_read_long_option(grammar, word, rest))
        # `isdigit` alone takes digits of other scripts, which no program reads as a number.
        elif grammar.takes_number and word[1:].isascii() and word[1:].isdigit():
            options.add("-0")
        else:
            options.update(_split_short_options(grammar, word, rest))
    if len(operands) < grammar.least or (grammar.most is not None and len(operands) > grammar.most):
        raise ValueError(f"{len(operands)} operands are not a form that is known to be harmless")
    for operand in operands:
        if not operand.startswith(grammar.begins):
            raise ValueError(f"operand {operand!r} is not known to be harmless")
    return Arguments(tuple(sorted(options)), tuple(operands), is_closed)


def _read_long_option(grammar: Grammar, word: str, rest: list[str]) -> str:
    name, equals, _ = word[2:].partition("=")
    if equals:
        known = grammar.long_valued | grammar.long_either
    else:
        known = grammar.long_flags | grammar.long_valued | grammar.long_either
    if name not in known:
        raise ValueError(f"option {word!r} is not known to be harmless")
    if not equals and name in grammar.long_valued:
        _take_value(word, rest)
    return f"--{name}"


def _split_short_options(grammar: Grammar, word: str, rest: list[str]) -> list[str]:
    found: list[str] = []
    for place, letter in enumerate(word[1:], 2):
        if letter not in grammar.flags and letter not in grammar.valued:
            raise ValueError(f"option '-{letter}' is not known to be harmless")
        found.append(f"-{letter}")
        if letter in grammar.valued:
            if place == len(word):
                _take_value(word, rest)
            break
    return found


def _take_value(word: str, rest: list[str]) -> None:
    if not rest:
        raise ValueError(f"option {word!r} has no value")
    rest.pop()


SHELLS: Final = frozenset({"bash", "dash", "sh"})
"""Shells that read the subset in the same way, except for syntax of bash alone."""
_SHELL_LETTERS: Final = "cefux"
"""The shell options that do not change what its text means."""
_WORDS: Final = re.compile(r"[A-Za-z0-9_.@-]{0,64}")
_LOCALE: Final = re.compile(r"(?:LANG|LC_[A-Za-z0-9_]+)")
_LOCALES: Final = re.compile(r"C|POSIX|[A-Za-z]{1,16}(?:_[A-Za-z]{1,16})?\.(?:UTF-8|utf-8|UTF8|utf8)")
"""Locales in which a backslash is never half of a letter, unlike under GBK or Shift_JIS."""
_PLAIN: Final = frozenset({"NO_COLOR", "COLUMNS"})


class WrappedCommand(NamedTuple):
    """What a wrapper runs."""

    words: tuple[str, ...] = ()
    text: str | None = None
    """Text for a shell, instead of words."""
    is_open: bool = False
    """Whether further operands come from elsewhere."""
    doubt: str = ""
    """Why it can't be judged by what it runs; empty = it can."""


def is_harmless_variable(name: str, value: str) -> bool:
    """Whether a variable only sets the language and width of a program's output."""
    if _LOCALE.fullmatch(name):
        return _LOCALES.fullmatch(value) is not None
    return name in _PLAIN and _WORDS.fullmatch(value) is not None


def run_by(name: str, arguments: tuple[str, ...]) -> WrappedCommand | None:
    """Return what a wrapper would run, or None for a program that is not a wrapper."""
    if name in SHELLS:
        return _read_shell(name, arguments)
    if name in _SPECIAL:
        return _SPECIAL[name](name, arguments)
    if name in _CLEAR:
        return _read_by_grammar(name, arguments)
    if name in _OPAQUE:
        return WrappedCommand(
            _from_first_operand(arguments), doubt=f"{name!r} has its own rules for what it runs"
        )
    return None


class _Clear(NamedTuple):
    """How a wrapper finds what to run."""

    grammar: Grammar
    operands: int = 0
    """Number of its own operands before the program."""


_TIMES: Final = Grammar("v", "ks", frozenset({"preserve-status", "foreground"}), stops=True)
_CLEAR: Final[Mapping[str, _Clear]] = {
    "command": _Clear(Grammar("p", stops=True)),
    "ionice": _Clear(Grammar("t", "cn", stops=True)),
    "nice": _Clear(Grammar("", "n", long_valued=frozenset({"adjustment"}), takes_number=True, stops=True)),
    "nohup": _Clear(Grammar(stops=True)),
    "setsid": _Clear(Grammar("cfw", "", frozenset({"ctty", "fork", "wait"}), stops=True)),
    "stdbuf": _Clear(Grammar("", "ioe", long_valued=frozenset({"input", "output", "error"}), stops=True)),
    "time": _Clear(Grammar("p", stops=True)),
    "timeout": _Clear(_TIMES, 1),
}
"""Wrappers that add nothing of their own."""

_OPAQUE_NAMES: Final = """
    busybox toybox ash ksh mksh zsh fish sudo doas su runuser setpriv chroot unshare nsenter bwrap firejail
    fakeroot systemd-run script watch strace ltrace gdb valgrind perf flock parallel ssh entr taskset chrt
    prlimit start-stop-daemon screen tmux expect unbuffer dbus-run-session
"""
_OPAQUE: Final = frozenset(_OPAQUE_NAMES.split())


def _from_first_operand(arguments: tuple[str, ...]) -> tuple[str, ...]:
    for place, word in enumerate(arguments):
        if not word.startswith("-"):
            return arguments[place:]
    return ()


def _read_by_grammar(name: str, arguments: tuple[str, ...]) -> WrappedCommand:
    clear = _CLEAR[name]
    try:
        operands = read_arguments(clear.grammar, arguments).operands[clear.operands :]
    except ValueError as error:
        return WrappedCommand(_from_first_operand(arguments), doubt=f"{name!r}: {error}")
    return (
        WrappedCommand(operands) if operands else WrappedCommand(doubt=f"{name!r} is given no command to run")
    )


_ENV: Final = Grammar(
    "iv0", "u", frozenset({"ignore-environment", "debug"}), frozenset({"unset"}), stops=True
)


def _read_env(name: str, arguments: tuple[str, ...]) -> WrappedCommand:
    """Read ``env``: options, variables, program; ``-S`` only if its text consists of plain words."""
    if arguments[:1] in {("-S",), ("--split-string",)} and len(arguments) > 1:
        return _split(arguments[1], arguments[2:])
    for prefix in ("--split-string=", "-S"):
        if arguments and arguments[0].startswith(prefix):
            return _split(arguments[0].removeprefix(prefix), arguments[1:])
    try:
        words = list(read_arguments(_ENV, arguments).operands)
    except ValueError as error:
        return WrappedCommand(_from_first_operand(arguments), doubt=f"{name!r}: {error}")
    doubt = ""
    while words and (words[0] == "-" or "=" in words[0]):
        variable, equals, value = words.pop(0).partition("=")
        if equals and not is_harmless_variable(variable, value):
            doubt = doubt or f"it sets {variable!r}"
    if not words:
        doubt = doubt or "'env' is given no command to run"
    return WrappedCommand(tuple(words), doubt=doubt)


def _split(text: str, rest: tuple[str, ...]) -> WrappedCommand:
    words = text.split()
    is_plain = text.isascii() and all(each.isalnum() or each in " -_./=" for each in text)
    if not is_plain or not words or words[0].startswith("-"):
        return WrappedCommand(doubt="'env -S' is given text that it reads by rules of its own")
    return _read_env("env", (*words, *rest))


def _read_shell(name: str, arguments: tuple[str, ...]) -> WrappedCommand:
    """Read ``sh -c TEXT``; what follows sets ``$0`` and ``$1``, which no text that can be judged uses."""
    letters = ""
    words = list(arguments)
    while words and words[0].startswith("-") and not words[0].startswith("--"):
        if words[0] == "-":
            return WrappedCommand(doubt=f"{name!r} is given '-', which ends its options")
        letters += words.pop(0)[1:]
        if "c" in letters:
            break
    if "c" not in letters or not words:
        return WrappedCommand(doubt=f"{name!r} runs what it reads from a file or its input")
    if set(letters) - set(_SHELL_LETTERS):
        return WrappedCommand(text=words[0], doubt=f"{name!r} is given more options than '-c'")
    # A shell reads options after `-c`, too: the word that follows it need not be the text.
    if words[0].startswith(("-", "+")):
        return WrappedCommand(doubt=f"{name!r} is given options after '-c'")
    return WrappedCommand(text=words[0])


_XARGS: Final = Grammar("0rtx", "nLPd", frozenset({"null", "no-run-if-empty"}), stops=True)


def _read_xargs(name: str, arguments: tuple[str, ...]) -> WrappedCommand:
    """Read ``xargs``: what it adds must be operands, so the program's own options end with ``--``."""
    try:
        words = read_arguments(_XARGS, arguments).operands
    except ValueError as error:
        return WrappedCommand(_from_first_operand(arguments), doubt=f"{name!r}: {error}")
    return (
        WrappedCommand(words, is_open=True)
        if words
        else WrappedCommand(doubt=f"{name!r} is given no command to run")
    )


_FIND_RUNS: Final = ("-exec", "-execdir", "-ok", "-okdir")


def _find(name: str, arguments: tuple[str, ...]) -> WrappedCommand:
    doubt = f"{name!r} has its own language"
    for place, word in enumerate(arguments):
        if word in _FIND_RUNS:
            inner = arguments[place + 1 :]
            ends = [at for at, each in enumerate(inner) if each in {";", "+"}]
            return WrappedCommand(inner[: ends[0]] if ends else inner, doubt=doubt)
    return WrappedCommand(doubt=doubt)


_SPECIAL: Final[Mapping[str, Callable[[str, tuple[str, ...]], WrappedCommand]]] = {
    "env": _read_env,
    "find": _find,
    "xargs": _read_xargs,
}
