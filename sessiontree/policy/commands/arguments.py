"""Grammars of arguments: which options a program may be given so that what it does is known.

A grammar names every option that is taken, in full; any other, an abbreviation too, makes a call one that
can't be judged. How arguments are read follows the programs themselves: options may stand behind operands,
letters may be joined, ``--`` ends options.

Source: POSIX.1-2017, "Utility Syntax Guidelines"; getopt(3) of the GNU C library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grammar:
    """What a program may be given."""

    flags: str = ""
    """Letters of options without a value."""
    valued: str = ""
    """Letters of options with a value, joined to it or before it."""
    long_flags: frozenset[str] = frozenset()
    """Long options without a value, without their dashes."""
    long_valued: frozenset[str] = frozenset()
    """Long options with a value, behind ``=`` or before it."""
    long_either: frozenset[str] = frozenset()
    """Long options that have a value if one stands behind ``=``."""
    takes_number: bool = False
    """Whether ``-5`` is an option."""
    least: int = 0
    """Fewest operands."""
    most: int | None = None
    """Most operands; None = any number."""
    begins: str = ""
    """What every operand begins with."""
    stops: bool = False
    """Whether the first operand ends the options."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """Arguments as a grammar reads them."""

    options: tuple[str, ...]
    """Names of the options with their dashes, sorted, each once; values are left out."""
    operands: tuple[str, ...]
    is_closed: bool
    """Whether ``--`` stood there: whatever is added behind is an operand."""


def read_arguments(grammar: Grammar, words: Sequence[str]) -> Arguments:
    """Return a program's arguments by its grammar.

    Raises:
        ValueError: an option is not of the grammar, lacks its value, or operands are too many or too few.
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
            options.add(_long(grammar, word, rest))
        elif grammar.takes_number and word[1:].isascii() and word[1:].isdigit():
            options.add("-0")
        else:
            options.update(_short(grammar, word, rest))
    if len(operands) < grammar.least or (grammar.most is not None and len(operands) > grammar.most):
        raise ValueError(f"{len(operands)} operands are not what is known to be harmless")
    for operand in operands:
        if not operand.startswith(grammar.begins):
            raise ValueError(f"operand {operand!r} is not what is known to be harmless")
    return Arguments(tuple(sorted(options)), tuple(operands), is_closed)


def _long(grammar: Grammar, word: str, rest: list[str]) -> str:
    name, equals, _ = word[2:].partition("=")
    if equals:
        known = grammar.long_valued | grammar.long_either
    else:
        known = grammar.long_flags | grammar.long_valued | grammar.long_either
    if name not in known:
        raise ValueError(f"option {word!r} is not among those known to be harmless")
    if not equals and name in grammar.long_valued:
        _take_value(word, rest)
    return f"--{name}"


def _short(grammar: Grammar, word: str, rest: list[str]) -> list[str]:
    found: list[str] = []
    for place, letter in enumerate(word[1:], 2):
        if letter not in grammar.flags and letter not in grammar.valued:
            raise ValueError(f"option '-{letter}' is not among those known to be harmless")
        found.append(f"-{letter}")
        if letter in grammar.valued:
            if place == len(word):
                _take_value(word, rest)
            break
    return found


def _take_value(word: str, rest: list[str]) -> None:
    if not rest:
        raise ValueError(f"option {word!r} lacks its value")
    rest.pop()
