"""Brackets: which round and curly brackets of a masked text belong together."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BRACKET = re.compile(r"[(){};]")
_CONDITIONAL = re.compile(r"[ \t]*#[ \t]*(if|else|elif|endif)[a-z]*\b[ \t]*(0[ \t]*$)?")


@dataclass(frozen=True, slots=True)
class Brackets:
    """Offsets of the brackets of one text."""

    partner: dict[int, int]
    """Opening bracket to closing one and back; an unmatched one is missing."""
    header: dict[int, int]
    """Each ``{`` in order of its offset, to where the statement before it starts."""
    parent: dict[int, int]
    """Each ``{`` to the one around it, -1 at the top."""
    rounds: list[int]
    """Offsets of each ``(``, ascending."""


def brackets_of(masked: str) -> Brackets:
    """Pair the brackets of a text without comments and strings, in one pass.

    A closing curly bracket also ends every round one opened inside it, so that damage stays local.
    """
    found = Brackets({}, {}, {}, [])
    partner = found.partner
    open_rounds: list[int] = []
    levels: list[tuple[int, int, int]] = []  # a `{`, open round brackets before it, start of its statement
    floor = 0
    boundary = 0
    for match in _BRACKET.finditer(masked):
        at = match.start()
        bracket = match[0]
        if bracket == "(":
            open_rounds.append(at)
            found.rounds.append(at)
        elif bracket == ")":
            if len(open_rounds) > floor:
                opened = open_rounds.pop()
                partner[opened] = at
                partner[at] = opened
        elif bracket == ";":
            if len(open_rounds) == floor:
                boundary = at + 1
        elif bracket == "{":
            found.header[at] = boundary
            found.parent[at] = levels[-1][0] if levels else -1
            levels.append((at, floor, boundary))
            floor = len(open_rounds)
            boundary = at + 1
        else:
            boundary = at + 1
            if levels:
                del open_rounds[floor:]
                opened, floor, before = levels.pop()
                partner[opened] = at
                partner[at] = opened
                if len(open_rounds) > floor:
                    # inside round brackets this was an argument: the statement goes on
                    boundary = before
    return found


def without_directives(masked: str) -> str:
    """Return C-like text without preprocessor lines, and of each conditional with one branch alone.

    Both branches of a conditional may open the same block; the first that is not ``#if 0`` stays. Line
    numbers stay.
    """
    if "#" not in masked:
        return masked
    kept = []
    branches: list[tuple[bool, bool]] = []  # per open conditional: this branch stays, one stayed already
    dropped = 0
    continues = False
    for line in masked.split("\n"):
        if continues or line.lstrip(" \t").startswith("#"):
            directive = None if continues else _CONDITIONAL.match(line)
            if directive is not None:
                dropped += _turn(branches, directive[1], directive[2] is not None)
            continues = line.endswith("\\")
            kept.append("")
        else:
            kept.append("" if dropped else line)
    return "\n".join(kept)


def _turn(branches: list[tuple[bool, bool]], word: str, never: bool) -> int:
    """Enter, switch or leave a conditional; returns by how much the number of dropped branches changes."""
    if word == "if":
        branches.append((not never, not never))
        return int(never)
    if not branches:
        return 0
    stays, stayed = branches.pop()
    if word == "endif":
        return -int(not stays)
    branches.append((not stayed, True))
    return int(stayed) - int(not stays)
