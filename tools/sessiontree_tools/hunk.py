"""The difference one replacement makes, as a unified diff of bounded size."""

from __future__ import annotations

from sessiontree.contracts.truncation import whole
from sessiontree_tools.replacement import Replacement

CONTEXT_LINES = 3
MAX_LINES = 400
MAX_LINE_CHARS = 500
NO_NEWLINE = "\\ No newline at end of file"


def unified_diff(path: str, change: Replacement) -> str:
    """Return the change as one hunk with three lines of context.

    Looks only at the lines around the change, so its cost does not grow with the file. Lines longer than
    500 characters are cut, and after 400 lines only their number is told.
    """
    text = change.before
    start = _back(text, change.start, CONTEXT_LINES)
    end = _forward(text, change.end, CONTEXT_LINES + 1)
    old = _lines(text[start:end])
    new = _lines(text[start : change.start] + change.new + text[change.end : end])
    head, tail = _shared(old, new)
    skipped = max(0, head - CONTEXT_LINES)
    kept_tail = min(tail, CONTEXT_LINES)
    first = text.count("\n", 0, start) + skipped + 1
    old_end, new_end = len(old) - tail, len(new) - tail
    body = [
        *_marked(" ", old[skipped:head]),
        *_marked("-", old[head:old_end]),
        *_marked("+", new[head:new_end]),
        *_marked(" ", old[old_end : old_end + kept_tail]),
    ]
    if len(body) > MAX_LINES:
        body = [*body[:MAX_LINES], f"… {len(body) - MAX_LINES} more lines"]
    ranges = [_range(first, end + kept_tail - skipped) for end in (old_end, new_end)]
    return "\n".join([f"--- a/{path}", f"+++ b/{path}", f"@@ -{ranges[0]} +{ranges[1]} @@", *body]) + "\n"


def _range(first: int, count: int) -> str:
    # An empty side names the line before the change, as patch programs expect.
    return f"{first if count else first - 1},{count}"


def _marked(mark: str, lines: list[str]) -> list[str]:
    marked: list[str] = []
    for line in lines:
        body = line.removesuffix("\n")
        marked.append(
            mark + (body if len(body) <= MAX_LINE_CHARS else body[: whole(body, MAX_LINE_CHARS)] + "…")
        )
        if body == line:
            marked.append(NO_NEWLINE)
    return marked


def _shared(old: list[str], new: list[str]) -> tuple[int, int]:
    """Return how many lines both begin with, and how many of the others both end with."""
    most = min(len(old), len(new))
    head = 0
    while head < most and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < most - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return head, tail


def _lines(text: str) -> list[str]:
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + [part for part in parts[-1:] if part]


def _back(text: str, at: int, lines: int) -> int:
    for _ in range(lines + 1):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return 0
    return at + 1


def _forward(text: str, at: int, lines: int) -> int:
    for _ in range(lines):
        at = text.find("\n", at) + 1
        if at == 0:
            return len(text)
    return at
