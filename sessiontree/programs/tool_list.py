"""The list of functions in the description of a tool whose calls are programs, for the model's prompt.

It is as short as signatures can be, bounded, and the same text for the same tools, so that a provider's cache
of the prompt holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.truncation import cut_text
from sessiontree.programs.signatures import list_arguments, make_function_name

MAX_DESCRIPTION_CHARS: Final = 1_200
MAX_LISTED_CHARS: Final = 110
"""Longest signature in a list; optional arguments that do not fit are left out."""
CHILDREN: Final = (
    " spawn(kind, task, schema=, agent=, budget=) returns a child's result, "
    "map(kind, tasks, concurrency=, on_error='return') those of many, race(kind, tasks, first=1) the first."
)
CHILD_SIGNATURES: Final = (
    "spawn(kind: 'branch'|'worker', task, agent=, schema: dict=, budget: dict=, label=, workspace=, "
    "on_error=); map(kind, tasks: list[str], concurrency: int=, stop_after: int=, on_error=, …); "
    "race(kind, tasks: list[str], first: int=, …)"
)
NOTE: Final = " Functions (= may be left out; without a type: str): "
IN_SCHEMAS: Final = "their schemas are your tools"
SEARCHED: Final = "find them with tool_search"
_LEAST: Final = len("f()")


def describe_program(
    description: str, tools: Iterable[tuple[str, Mapping[str, JsonValue]]], starter: str, rest: str
) -> str:
    """Return a description with the signatures of tools, at most ``MAX_DESCRIPTION_CHARS`` characters.

    Args:
        description: What the tool says of itself; a long one leaves no room for a list.
        tools: The tools that a program may call, the most useful first: their names, and the schemas of their
            parameters.
        starter: The tool that starts children; a program calls it by ``spawn`` and ``map`` instead.
        rest: Where the model finds the tools that do not fit into the list.
    """
    given = list(tools)
    listed = [each for each in given if each[0] != starter]
    head = description + (CHILDREN if len(listed) < len(given) else "")
    room = MAX_DESCRIPTION_CHARS - len(head) - len(NOTE)
    functions = _fit_signatures(listed, room, rest) if listed and room > 0 else ""
    return cut_text(f"{head}{NOTE}{functions}" if functions else head, MAX_DESCRIPTION_CHARS)


def _fit_signatures(tools: list[tuple[str, Mapping[str, JsonValue]]], room: int, rest: str) -> str:
    """Return as many signatures as there is room for, and how many are left out."""
    room -= len(_format_rest(len(tools), rest))  # the longest that this note can be
    shown: list[str] = []
    for name, schema in tools:
        if room < _LEAST:
            break
        signature = shorten_signature(name, schema)
        if len(signature) + 2 <= room:
            shown.append(signature)
            room -= len(signature) + 2
    left = len(tools) - len(shown)
    if not shown:
        return ""
    return "; ".join(shown) + (_format_rest(left, rest) if left else ".")


def _format_rest(count: int, rest: str) -> str:
    return f"; and {count} more: {rest}."


def shorten_signature(
    tool: str, parameters: Mapping[str, JsonValue], max_chars: int = MAX_LISTED_CHARS
) -> str:
    """Return a tool's function as one short text, such as ``read(path, offset: int=, limit: int=)``.

    Optional arguments beyond ``max_chars`` are left out, and a mark says so.
    """
    arguments = list_arguments(parameters)
    words = [_shorten_argument(*each) for each in arguments]
    needed = sum(is_needed for _, _, is_needed in arguments)
    name = make_function_name(tool)
    kept = len(words)
    while kept > needed and len(_join_signature(name, words, kept)) > max_chars:
        kept -= 1
    return _join_signature(name, words, kept)


def _join_signature(name: str, words: list[str], kept: int) -> str:
    shown = words[:kept] + (["…"] if kept < len(words) else [])
    return f"{name}({', '.join(shown)})"


def _shorten_argument(name: str, hint: str, is_needed: bool) -> str:
    kind = hint.removesuffix(" | None").replace("dict[str, Any]", "dict").replace("list[Any]", "list")
    kind = re.sub(r"Literal\[(.*?)\]", lambda found: found[1].replace("', '", "'|'"), kind)
    typed = name if kind == "str" else f"{name}: {kind}"
    return typed if is_needed else f"{typed}="
