"""What a call changes in a file, as lines to be coloured: as its arguments tell, or its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ToolResultMessage

MAX_LINES: Final = 400
MAX_LINE_CHARS: Final = 500

DiffLine = list[str]
"""``[mark, line]``: the mark is a space, ``-``, ``+`` or ``@`` (a heading)."""


def find_call_differences(tool: str, arguments: Mapping[str, JsonValue]) -> list[DiffLine] | None:
    """Return what a call would change, as far as its arguments tell; None if it changes no text of a file."""
    path, old, new = (arguments.get(name) for name in ("path", "old_text", "new_text"))
    if tool == "edit" and isinstance(path, str) and isinstance(old, str) and isinstance(new, str):
        return _limit_lines([["@", path], *_mark_lines("-", old), *_mark_lines("+", new)])
    content = arguments.get("content")
    if tool == "write" and isinstance(path, str) and isinstance(content, str):
        return _limit_lines([["@", path], *_mark_lines("+", content)])
    patch = arguments.get("patch")
    if tool == "apply_patch" and isinstance(patch, str):
        return parse_differences(patch)
    return None


def find_result_differences(message: ToolResultMessage) -> list[DiffLine] | None:
    """Return what a call changed, as the details of its result tell; None if they don't."""
    details = message.details.get("details", message.details) if isinstance(message.details, dict) else None
    diff = details.get("diff") if isinstance(details, dict) else None
    return parse_differences(diff) if isinstance(diff, str) and diff else None


def parse_differences(unified: str) -> list[DiffLine]:
    """Return the lines of a unified diff."""
    lines = []
    # One line more than is shown, so that the limit below knows that something was left out.
    for line in unified.removesuffix("\n").split("\n")[: MAX_LINES + 1]:
        if line.startswith(("---", "+++", "@@", "***")):
            lines.append(["@", line])
        elif line[:1] in {"-", "+"}:
            lines.append([line[0], line[1:]])
        else:
            lines.append([" ", line.removeprefix(" ")])
    return _limit_lines(lines)


def _mark_lines(mark: str, text: str) -> list[DiffLine]:
    return [[mark, line] for line in text.removesuffix("\n").split("\n", MAX_LINES + 1)]


def _limit_lines(lines: list[DiffLine]) -> list[DiffLine]:
    more = [["@", "… more lines"]] if len(lines) > MAX_LINES else []
    kept = [
        [mark, make_visible(line[:MAX_LINE_CHARS].replace("\t", "    "))] for mark, line in lines[:MAX_LINES]
    ]
    return [*kept, *more]
