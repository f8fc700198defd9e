"""Programs that a model writes: the tool they are a call of, and what one asks of its session.

A program runs in an interpreter process and holds no handle. What it may do are calls of its session's tools,
each an ordinary call with a key of its own, ``<the program's key>/<number>``. Numbers count from 0, in the
order in which the program asked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from sessiontree.contracts.recorded.codec import declare_sparse, register_kind
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.quick_dataclass import dataclass

MAX_PROGRAM_CALLS: Final = 10_000
"""Calls that one program may make."""
MAX_ANSWER_CHARS: Final = 2_000_000
"""Longest text of a call's result that its program gets."""
MAX_PROGRAM_NOTES: Final = 1_000
MAX_NOTE_CHARS: Final = 2_000
DEFAULT_FOUND: Final = 8
"""Tools that a search of them shows unless it says how many."""
STARTS_CHILDREN: Final = "sessions_spawn"
"""The tool behind ``spawn`` and ``map`` of a program."""
IS_TEXT: Final = "is_text"
"""The detail of a program's result that says whether its value is a text; JSON can look like one."""
SAVED_INPUTS: Final = "saved_inputs"
"""The variable of a saved program that holds the arguments of its call."""
MAX_PROGRAM_DEPTH: Final = 8
"""How deep saved programs may call each other, with the first one; a program that calls itself ends there."""
NoteKind: TypeAlias = Literal["print", "log", "phase", "fan_out"]
"""What a program's note is: something it printed or logged, the name of the phase that begins, or that a
fan-out begins or ends: its number, the function or ``ended``, and how many tasks it has or did not start."""


@register_kind("program_call")
@dataclass(frozen=True, slots=True)
class ProgramCall:
    """A call that a program asks for."""

    tool: str
    arguments: Mapping[str, JsonValue]
    line: int = declare_sparse(0)
    """Line of the program that waits for it, from 1; 0 = not known."""
    awaits: bool = declare_sparse(False)
    """Whether its answer is the report of the child that it starts."""
    timeout_s: float | None = declare_sparse(None)
    """How long the program waits for its answer; None = as long as it takes."""
    fan_out: int = declare_sparse(0)
    """Number of the fan-out that it is part of, from 1; 0 = none."""


@register_kind("program_note")
@dataclass(frozen=True, slots=True)
class ProgramNote:
    """Something that a program shows to readers of the journal: a line it prints, or the phase it begins."""

    sort: NoteKind
    text: str


PROGRAM_TOOL: Final = "program"
"""The tool whose calls bring their own text."""
SAVED_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""What a saved program may be called: its name is that of its tool and of its function in programs."""


def make_first_call(source_or_name: str, inputs: Mapping[str, JsonValue]) -> ProgramCall:
    """Return the call that runs a program.

    Args:
        source_or_name: The name of a saved program, or the text of another one: a text that is a single name
            computes nothing.
        inputs: Arguments of the saved program, or variables of the text.
    """
    if SAVED_NAME.fullmatch(source_or_name):
        return ProgramCall(source_or_name, dict(inputs))
    return ProgramCall(PROGRAM_TOOL, {"code": source_or_name, **({"inputs": dict(inputs)} if inputs else {})})


def make_program_key(program: str, number: int) -> str:
    """Return the key of a program's call."""
    return f"{program}/{number}"


@register_kind("program_source")
@dataclass(frozen=True, slots=True)
class ProgramSource:
    """The text of a saved program as its call found it: this runs again after a loss, not the file."""

    name: str
    code: str
    """The file's text and the call of its ``main``, which takes the variable :data:`SAVED_INPUTS`."""
    digest: str
    """SHA-256 of the code, in hexadecimal."""
    timeout_s: float | None = declare_sparse(None)
    """After how many seconds each call is ended; None = never."""


def compute_expiry_ms(
    arguments: Mapping[str, JsonValue], began_at_ms: int, source: ProgramSource | None = None
) -> int | None:
    """Return when a program with these arguments is ended; None = never.

    ``source`` is the saved program, if it is one: its arguments are its own.
    """
    limit_s = arguments.get("timeout_s") if source is None else source.timeout_s
    return began_at_ms + int(limit_s * 1000) if isinstance(limit_s, int | float) else None


def count_depth(key: str) -> int:
    """Return how many programs are around the call of a key."""
    return key.count("/")


def is_of_program(key: str) -> bool:
    """Return whether a program made the call of a key."""
    return "/" in key


def is_text_value(details: JsonValue) -> bool:
    """Whether the value of a program's result is a text, by the details of the result's message."""
    kept = details.get("details") if isinstance(details, Mapping) else None
    return isinstance(kept, Mapping) and kept.get(IS_TEXT) is True
