"""Programs that a model writes: the tool they are a call of, and what one asks of its session.

A program runs in an interpreter process and holds no handle. What it may do are calls of its session's tools,
each an ordinary call with a key of its own, ``<the program's key>/<number>``. Numbers count from 0, in the
order in which the program asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from sessiontree.contracts.codec import recorded, sparse
from sessiontree.contracts.jsonable import JsonValue
from sessiontree.contracts.tool import P, Tool

MAX_PROGRAM_CALLS: Final = 10_000
"""Calls that one program may make."""
MAX_ANSWER_CHARS: Final = 2_000_000
"""Longest text of a call's result that its program gets."""
MAX_PROGRAM_NOTES: Final = 1_000
MAX_NOTE_CHARS: Final = 2_000
STARTS_CHILDREN: Final = "sessions_spawn"
"""The tool behind ``spawn`` and ``map`` of a program."""
NoteKind: TypeAlias = Literal["print", "log", "phase"]
"""What a program's note is: something it printed or logged, or the name of the phase that begins."""


class ProgramTool(Tool[P]):
    """A tool whose call is a program: an interpreter runs it, and its calls are calls of the session.

    Its parameters have the members ``code``, ``inputs`` and ``timeout_s``.
    """


@recorded("program_call")
@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A call that a program asks for."""

    tool: str
    arguments: Mapping[str, JsonValue]
    line: int = sparse(0)
    """Line of the program that waits for it, from 1; 0 = not known."""
    awaits: bool = sparse(False)
    """Whether its answer is the report of the child that it starts."""
    timeout_s: float | None = sparse(None)
    """How long the program waits for its answer; None = as long as it takes."""


@recorded("program_note")
@dataclass(frozen=True, slots=True)
class ProgramNote:
    """Something that a program shows to readers of the journal: a line it prints, or the phase it begins."""

    sort: NoteKind
    text: str


def key_in_program(program: str, number: int) -> str:
    """Return the key of a program's call."""
    return f"{program}/{number}"


def expiry_ms(arguments: Mapping[str, JsonValue], began_at_ms: int) -> int | None:
    """Return when a program with these arguments is ended; None = never."""
    limit_s = arguments.get("timeout_s")
    return began_at_ms + int(limit_s * 1000) if isinstance(limit_s, int | float) else None


def is_of_program(key: str) -> bool:
    """Return whether a program made the call of a key."""
    return "/" in key
