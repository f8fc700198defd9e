"""Writes the spans of a tree: what each stands for, its parent, and what of its content is shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from sessiontree.contracts.facts.tree_config import TreeConfig
from sessiontree.contracts.values.jsonable import JsonValue, dump_readable
from sessiontree.contracts.values.messages import Usage
from sessiontree.runtime.telemetry.open_spans import OpenSpans
from sessiontree.runtime.telemetry.spans import Attribute, build_usage_attributes

Content: TypeAlias = Callable[[JsonValue], JsonValue]
"""Takes what sessions read or wrote and returns what of it may be shown."""

ROOT: Final = "tree"
"""What the span of the whole tree stands for."""
MAX_CONTENT_CHARS: Final = 32_768
"""Longest text of one attribute with content."""


class SpanWriter:
    """Begins, changes and ends the open spans of one tree.

    Args:
        config: The tree's configuration.
        spans: The open spans.
        content: Passes what sessions read and wrote on to attributes, without secrets; None = it is left out.
    """

    def __init__(self, config: TreeConfig, spans: OpenSpans, content: Content | None) -> None:
        self.spans = spans
        self._tree_id = config.tree_id
        self._content = content

    @property
    def shows_content(self) -> bool:
        """Whether content is asked for."""
        return self._content is not None

    def begin(
        self,
        what: str,
        name: str,
        session: str,
        parent: str,
        attributes: dict[str, Attribute],
        kind: Literal["internal", "client"] = "internal",
    ) -> None:
        """Begin a span; without its parent it is below its session, or below the tree."""
        known = {"gen_ai.conversation.id": self._tree_id, **attributes}
        self.spans.begin(what, name, session, (parent, make_session_key(session), ROOT), known, kind)

    def end(self, what: str, error: str | None = None, reason: str = "") -> None:
        """End a span if it is open; the reason of an error is content."""
        self.spans.end(what, error, self.format_content(reason) if error is not None and reason else "")

    def add_event(self, what: str, name: str, **attributes: Attribute) -> None:
        """Add an event to a span if it is open."""
        self.spans.event(what, name, **attributes)

    def note(self, what: str, attributes: dict[str, Attribute]) -> None:
        """Add attributes to a span if it is open."""
        self.spans.note(what, attributes)

    def note_content(self, what: str, key: str, value: JsonValue) -> None:
        """Set an attribute with content, if content is asked for."""
        if self._content is not None:
            self.spans.note(what, {key: self.format_content(value)})

    def format_content(self, value: JsonValue) -> str:
        """Return content as text without secrets, cut if it is long; empty if no content is asked for."""
        if self._content is None:
            return ""
        shown = self._content(value)
        text = shown if isinstance(shown, str) else dump_readable(shown)
        text = text.encode("utf-8", "replace").decode()
        return text if len(text) <= MAX_CONTENT_CHARS else f"{text[:MAX_CONTENT_CHARS]}…"

    def charge(self, what: str, before: Usage, used: Usage) -> Usage:
        """Return a sum of usage with more added, and set it as the attributes of a span."""
        total = before + used
        self.spans.note(what, build_usage_attributes(total))
        return total


def make_session_key(session: str) -> str:
    """Return what the span of a session stands for."""
    return f"session|{session}"


def make_turn_key(session: str, turn: int) -> str:
    """Return what the span of a turn stands for."""
    return f"turn|{session}|{turn}"


def make_chat_key(session: str, turn: int, attempt: int) -> str:
    """Return what the span of a question to a model stands for."""
    return f"chat|{session}|{turn}.{attempt}"


def make_call_key(session: str, key: str) -> str:
    """Return what the span of a call stands for."""
    return f"call|{session}|{key}"
