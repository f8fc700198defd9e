"""Tool calls as an editor shows them: their kind, title, places, diffs and results, all of them bounded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    TerminalToolCallContent,
    TextContentBlock,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolKind,
)

from sessiontree.channels.safe_text import make_visible
from sessiontree.contracts.values.jsonable import dump_readable
from sessiontree.contracts.values.messages import TextContent, ToolResultMessage
from sessiontree.contracts.values.short_values import SHOWN_CHARS
from sessiontree.contracts.values.truncation import cut_line, cut_text

MAX_TITLE_CHARS: Final = 200
_MAX_PATH_CHARS: Final = 4_096
MAX_RAW_CHARS: Final = 20_000
"""Longest arguments, as JSON, that are sent whole; an approval request has all of them as text."""
KINDS: Final[Mapping[str, ToolKind]] = {
    "read": "read",
    "image": "read",
    "memory_get": "read",
    "grep": "search",
    "find": "search",
    "memory_search": "search",
    "web_search": "search",
    "write": "edit",
    "edit": "edit",
    "apply_patch": "edit",
    "write_html": "edit",
    "exec": "execute",
    "process": "execute",
    "program": "execute",
    "web_fetch": "fetch",
    "http_request": "fetch",
    "memory_forget": "delete",
    "sessions_spawn": "think",
}
"""Kinds of tools, which choose a picture; any other tool is ``other``."""
_GISTS: Final = ("path", "command", "pattern", "query", "url", "task", "text")
"""Arguments that say best what a call does, most telling first."""
Shown: TypeAlias = list[ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent]


def derive_call_id(session: str, key: str) -> str:
    """Return the id of a call for an editor: the same after a restart."""
    return f"{session}:{key}"


def make_child_id(session: str) -> str:
    """Return the id of the tool call that a child is shown as."""
    return f"session:{session}"


def make_text_content(text: str, max_chars: int = SHOWN_CHARS) -> ContentToolCallContent:
    """Return a text, at most so many characters of it, as content of a tool call."""
    block = TextContentBlock(type="text", text=cut_text(text, max_chars))
    return ContentToolCallContent(type="content", content=block)


def make_title(tool: str, arguments: Mapping[str, Any], session: str = "main") -> str:
    """Return one line that says what a call does; a call of a child begins with the child's path."""
    gist = next((value for name in _GISTS if isinstance(value := arguments.get(name), str) and value), "")
    where = "" if session == "main" else f"{session}: "
    return cut_line(make_visible(f"{where}{tool} {gist}".strip()), MAX_TITLE_CHARS)


def render_start(
    call_id: str, tool: str, arguments: Mapping[str, Any], root: Path, *, session: str = "main"
) -> ToolCallStart:
    """Return the update that shows a call for the first time.

    Args:
        call_id: Its id for the editor.
        tool: The tool's name.
        arguments: Its arguments.
        root: The workspace, where relative paths begin.
        session: The session that makes it.
    """
    return ToolCallStart(
        session_update="tool_call",
        tool_call_id=call_id,
        title=make_title(tool, arguments, session),
        kind=KINDS.get(tool, "other"),
        status="pending",
        raw_input=shorten_raw(arguments),
        locations=find_locations(arguments, root),
        content=make_diffs(tool, arguments, root) or None,
        field_meta={"sessiontree": {"session": session, "tool": tool}},
    )


def make_progress(
    call_id: str, status: ToolCallStatus, content: Sequence[Any] | None = None
) -> ToolCallProgress:
    """Return the update of a call that was shown; content replaces what was shown before."""
    return ToolCallProgress(
        session_update="tool_call_update",
        tool_call_id=call_id,
        status=status,
        content=None if content is None else list(content),
    )


def shorten_raw(arguments: Mapping[str, Any]) -> Any:
    """Return arguments as they are, or how long they are if that is too long."""
    length = len(dump_readable(arguments))
    return dict(arguments) if length <= MAX_RAW_CHARS else {"omitted": True, "characters": length}


def find_locations(arguments: Mapping[str, Any], root: Path) -> list[ToolCallLocation] | None:
    """Return the file that a call names, with its first line if it reads a part."""
    path = _place(arguments.get("path"), root)
    if path is None:
        return None
    offset = arguments.get("offset")
    line = offset if isinstance(offset, int) and not isinstance(offset, bool) and offset > 0 else None
    return [ToolCallLocation(path=path, line=line)]


def make_diffs(tool: str, arguments: Mapping[str, Any], root: Path) -> Shown:
    """Return what a call of a tool for files would change, as far as its arguments say."""
    path = _place(arguments.get("path"), root)
    old = arguments.get("old_text") if tool == "edit" else None
    new = arguments.get("new_text" if tool == "edit" else "content")
    if tool not in {"write", "edit"} or path is None or not isinstance(new, str):
        return []
    if len(new) > MAX_RAW_CHARS or not isinstance(old, str | None) or len(old or "") > MAX_RAW_CHARS:
        return [make_text_content(f"{tool}: {len(new):,} characters")]
    return [FileEditToolCallContent(type="diff", path=path, old_text=old, new_text=new)]


def make_result_content(message: ToolResultMessage, before: Shown) -> Shown:
    """Return what to show of a finished call: the diff it was shown with, or its result."""
    if before and not message.is_error:
        return before
    texts = [block.text for block in message.content if isinstance(block, TextContent)]
    images = len(message.content) - len(texts)
    more = [f"({images} image{'' if images == 1 else 's'})"] if images else []
    return [make_text_content("\n".join((*texts, *more)))]


def _place(path: object, root: Path) -> str | None:
    """Return a path as an editor opens it; None = it is not a path, or leads out of the workspace."""
    if not isinstance(path, str) or not path or "\0" in path or len(path) > _MAX_PATH_CHARS:
        return None
    found = os.path.normpath(root / path)
    return found if Path(found).is_relative_to(root) else None
