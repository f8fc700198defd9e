"""Programs that run others: what each of them would run.

Some add nothing of their own, and are judged by what they run. Others take what they run from elsewhere, or
read it by rules of their own: what they name can be shown, but not be judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from sessiontree.policy.commands.arguments import Grammar, read_arguments

SHELLS: Final = frozenset({"bash", "dash", "sh"})
"""Shells that read the subset alike, but for what is bash's own."""
_SHELL_LETTERS: Final = "cefux"
"""Of a shell's options those that change nothing about what its text means."""
_WORDS: Final = re.compile(r"[A-Za-z0-9_.@-]{0,64}")
_LOCALE: Final = re.compile(r"(?:LANG|LC_[A-Za-z0-9_]+)")
_LOCALES: Final = re.compile(r"C|POSIX|[A-Za-z]{1,16}(?:_[A-Za-z]{1,16})?\.(?:UTF-8|utf-8|UTF8|utf8)")
"""Locales in which a backslash is never half of a letter, as it may be under GBK or Shift_JIS."""
_PLAIN: Final = frozenset({"NO_COLOR", "COLUMNS"})


class WrappedCommand(NamedTuple):
    """What a wrapper runs."""

    words: tuple[str, ...] = ()
    text: str | None = None
    """Text of a shell, instead of words."""
    is_open: bool = False
    """Whether more operands come from elsewhere."""
    doubt: str = ""
    """Why it can't be judged by that; empty = it can."""


def is_harmless_variable(name: str, value: str) -> bool:
    """Whether a variable says only in which language and how broadly a program is to speak."""
    if _LOCALE.fullmatch(name):
        return _LOCALES.fullmatch(value) is not None
    return name in _PLAIN and _WORDS.fullmatch(value) is not None


def run_by(name: str, arguments: tuple[str, ...]) -> WrappedCommand | None:
    """Return what a wrapper would run, None for a program that is no wrapper."""
    if name in SHELLS:
        return _shell(name, arguments)
    if name in _SPECIAL:
        return _SPECIAL[name](name, arguments)
    if name in _CLEAR:
        return _by_grammar(name, arguments)
    if name in _OPAQUE:
        return WrappedCommand(
            _from_first_operand(arguments), doubt=f"{name!r} has rules of its own for what it runs"
        )
    return None


class _Clear(NamedTuple):
    """How a wrapper is told what to run."""

    grammar: Grammar
    operands: int = 0
    """Of its own, before the program."""


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


def _by_grammar(name: str, arguments: tuple[str, ...]) -> WrappedCommand:
    clear = _CLEAR[name]
    try:
        operands = read_arguments(clear.grammar, arguments).operands[clear.operands :]
    except ValueError as error:
        return WrappedCommand(_from_first_operand(arguments), doubt=f"{name!r}: {error}")
    return WrappedCommand(operands) if operands else WrappedCommand(doubt=f"{name!r} is given nothing to run")


_ENV: Final = Grammar(
    "iv0", "u", frozenset({"ignore-environment", "debug"}), frozenset({"unset"}), stops=True
)


def _env(name: str, arguments: tuple[str, ...]) -> WrappedCommand:
    """Read ``env``: options, variables, program; ``-S`` only where its text is as plain as words are."""
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
        doubt = doubt or "'env' is given nothing to run"
    return WrappedCommand(tuple(words), doubt=doubt)


def _split(text: str, rest: tuple[str, ...]) -> WrappedCommand:
    words = text.split()
    is_plain = text.isascii() and all(each.isalnum() or each in " -_./=" for each in text)
    if not is_plain or not words or words[0].startswith("-"):
        return WrappedCommand(doubt="'env -S' is given text that it reads by rules of its own")
    return _env("env", (*words, *rest))


def _shell(name: str, arguments: tuple[str, ...]) -> WrappedCommand:
    """Read ``sh -c TEXT``; what follows fills ``$0`` and ``$1``, which no text that can be judged has."""
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
    if words[0].startswith(("-", "+")):
        return WrappedCommand(doubt=f"{name!r} is given options behind '-c'")
    return WrappedCommand(text=words[0])


_XARGS: Final = Grammar("0rtx", "nLPd", frozenset({"null", "no-run-if-empty"}), stops=True)


def _xargs(name: str, arguments: tuple[str, ...]) -> WrappedCommand:
    """Read ``xargs``: what it adds must be operands, so the program's own options end with ``--``."""
    try:
        words = read_arguments(_XARGS, arguments).operands
    except ValueError as error:
        return WrappedCommand(_from_first_operand(arguments), doubt=f"{name!r}: {error}")
    return (
        WrappedCommand(words, is_open=True)
        if words
        else WrappedCommand(doubt=f"{name!r} is given nothing to run")
    )


_FIND_RUNS: Final = ("-exec", "-execdir", "-ok", "-okdir")


def _find(name: str, arguments: tuple[str, ...]) -> WrappedCommand:
    doubt = f"{name!r} has a language of its own"
    for place, word in enumerate(arguments):
        if word in _FIND_RUNS:
            inner = arguments[place + 1 :]
            ends = [at for at, each in enumerate(inner) if each in {";", "+"}]
            return WrappedCommand(inner[: ends[0]] if ends else inner, doubt=doubt)
    return WrappedCommand(doubt=doubt)


_SPECIAL: Final[Mapping[str, Callable[[str, tuple[str, ...]], WrappedCommand]]] = {
    "env": _env,
    "find": _find,
    "xargs": _xargs,
}
