"""Tools of MCP servers as sessions call them: the handle, calls, replies, and what a server asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sessiontree.contracts.values.jsonable import JsonValue
from sessiontree.contracts.values.messages import ImageContent
from sessiontree.contracts.values.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ServerInput:
    """What a server needs before it completes a call."""

    requests: Mapping[str, JsonValue]
    """Its requests by the keys that it gave them; empty = it only wants the call again."""
    state: str | None
    """The server's own state, returned to it unchanged; None = it gave none."""


@dataclass(frozen=True, slots=True)
class InputResponses:
    """The answers to what a server needed, with the state that it gave."""

    responses: Mapping[str, JsonValue]
    state: str | None


@dataclass(frozen=True, slots=True)
class ServerReply:
    """A server's reply to one call."""

    text: str = ""
    structured: JsonValue = None
    images: tuple[ImageContent, ...] = ()
    is_error: bool = False
    """Whether the server says that the call failed."""
    input: ServerInput | None = None
    """What it needs first; None = the reply is final."""


@dataclass(frozen=True, slots=True)
class ServerCall:
    """One call of a server's tool."""

    server: str
    """The server's name in the configuration."""
    tool: str
    """The tool's name at the server."""
    arguments: Mapping[str, JsonValue]
    """They fit the pinned schema."""
    key: str
    """Names the call, so that it can be dropped."""
    limit_s: float
    """The longest wait for the reply, in seconds."""
    given: InputResponses | None = None
    """Answers to what the server needed; None = the call is new."""


class ServerTools(Protocol):
    """Calls tools of the MCP servers that the owner configured for the tree."""

    async def call(self, call: ServerCall) -> ServerReply:
        """Call a tool, or go on with a call whose questions were answered.

        Raises:
            ExecutionError: the server can't be reached, has changed, or was lost during the call.
            PermissionDenied: the tree has no such server, or the session may not call the tool.
            Timeout: the server did not reply in time; it goes on for other calls.
        """
        ...
